"""Reads `go test -json` from standard input, shows what failed and the slowest packages, and appends the counts.

usage: go test -json ./... | python3 .ci/count.py COUNTS_FILE
The counts file gets one line "passed failed" per call. Exit 1 when a test or a package failed, or none ran.
"""
import json
import sys


def main() -> int:
    passed = failed = 0
    output: dict[tuple[str, str], list[str]] = {}
    bad: list[tuple[str, str]] = []
    took: list[tuple[float, str]] = []
    for line in sys.stdin:
        try:
            event = json.loads(line)
        except ValueError:
            sys.stdout.write(line)
            continue
        key = (event.get("Package") or event.get("ImportPath", ""), event.get("Test", ""))
        action = event.get("Action")
        if action in ("output", "build-output"):
            output.setdefault(key, []).append(event["Output"])
        elif action in ("pass", "fail"):
            if action == "fail":
                bad.append(key)
            if key[1]:
                passed += action == "pass"
                failed += action == "fail"
            elif action == "fail" and not any(k[0] == key[0] and k[1] for k in bad):
                failed += 1  # the package did not build, or died outside a test
        elif action == "build-fail":
            bad.append(key)
        elif action == "skip" and key[1]:
            print(f"SKIPPED: {key[0]} {key[1]}")
        if action in ("pass", "fail") and not key[1]:
            took.append((event.get("Elapsed", 0.0), key[0]))
        if action == "pass" and key[1]:
            output.pop(key, None)
    for key in bad:
        print(f"--- FAIL: {key[0]} {key[1]}")
        sys.stdout.write("".join(output.get(key, [])[-200:]))
    for seconds, package in sorted(took, reverse=True)[:5]:
        print(f"{seconds:7.1f} s  {package}")
    with open(sys.argv[1], "a", encoding="utf-8") as counts:
        counts.write(f"{passed} {failed}\n")
    print(f"{passed} passed, {failed} failed in this part")
    return 1 if failed or bad or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
