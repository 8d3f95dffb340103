package pyclient

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/csv"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func wheel(t *testing.T, version string) (string, []byte) {
	t.Helper()
	var b bytes.Buffer
	name, err := WriteWheel(&b, version)
	if err != nil {
		t.Fatal(err)
	}
	return name, b.Bytes()
}

func TestFSHoldsThePackageAlone(t *testing.T) {
	var got []string
	err := fs.WalkDir(FS, ".", func(path string, d fs.DirEntry, err error) error {
		if !d.IsDir() {
			got = append(got, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"__init__", "_adapter", "_errors", "_run", "_wire", "composer", "hf", "keras", "lightning"}
	for i := range want {
		want[i] = "headway/" + want[i] + ".py"
	}
	if d := cmp.Diff(append(want, "headway/py.typed"), got); d != "" {
		t.Error(d)
	}
}

func TestWheelIsReproducible(t *testing.T) {
	name, a := wheel(t, "v0.3.1")
	_, b := wheel(t, "0.3.1")
	if name != "headway-0.3.1-py3-none-any.whl" {
		t.Errorf("file name %q", name)
	}
	if !bytes.Equal(a, b) {
		t.Error("two wheels of one version differ")
	}
}

func TestRecordListsEveryFile(t *testing.T) {
	_, b := wheel(t, "0.3.1")
	z, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	var rows [][]string
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(data)
		got[f.Name] = fmt.Sprintf("sha256=%s,%d", base64.RawURLEncoding.EncodeToString(sum[:]), len(data))
		if strings.HasSuffix(f.Name, "/RECORD") {
			got[f.Name] = ","
			if rows, err = csv.NewReader(bytes.NewReader(data)).ReadAll(); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := map[string]string{}
	for _, row := range rows {
		want[row[0]] = row[1] + "," + row[2]
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestWheelRefusesAVersionThatInstallersRefuse(t *testing.T) {
	for _, version := range []string{"", "v", "(devel)", "1.2.3-4-gabc", "../1", "1.0.0\n", "1..2"} {
		var b bytes.Buffer
		if _, err := WriteWheel(&b, version); err == nil || b.Len() > 0 {
			t.Errorf("version %q: error %v, %d bytes written", version, err, b.Len())
		}
	}
	for _, version := range []string{"1", "v1.2.3", "1.2rc1", "0.4.0.dev1", "1.0+local.1"} {
		wheel(t, version)
	}
}

// TestPythonImportsTheWheel installs it, with the installer where the machine has one; a wheel is also a zip that
// Python imports from.
func TestPythonImportsTheWheel(t *testing.T) {
	name, b := wheel(t, "0.3.1")
	dir := t.TempDir()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	places := []string{path}
	if exec.Command("python3", "-m", "pip", "--version").Run() == nil {
		installed := filepath.Join(dir, "installed")
		out, err := exec.Command("python3", "-m", "pip", "install", "--quiet", "--no-index", "--no-deps",
			"--disable-pip-version-check", "--target", installed, path).CombinedOutput()
		if err != nil {
			t.Fatalf("pip: %v\n%s", err, out)
		}
		places = append(places, installed)
	}
	for _, place := range places {
		cmd := exec.Command("python3", "-c", "import headway as w, sys\n"+
			"with w.attach() as run: run.step(1)\nprint(w.hf.Callback.__module__, w.__file__.startswith(sys.argv[1]))", place)
		cmd.Dir = t.TempDir() // not here: the sources would be found first
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "PYTHONPATH=" + place, "PYTHONDONTWRITEBYTECODE=1"}
		out, err := cmd.CombinedOutput()
		if err != nil || string(out) != "headway.hf True\n" {
			t.Errorf("import from %s: %v\n%s", place, err, out)
		}
	}
}
