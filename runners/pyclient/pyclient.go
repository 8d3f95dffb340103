// Package pyclient is the Python package that a training program imports (folder headway/: standard library only,
// Python 3.9 and later), embedded so that client and agent can never differ in version. The agent lays FS out in a
// folder of PYTHONPATH; WriteWheel packs the same files for people who install them. The package itself speaks the
// protocol of runners/agent/PROTOCOL.md; nothing of it is known here.
package pyclient

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"strings"
	"time"
)

// FS holds headway/*.py and headway/py.typed, and no tests.
//
//go:embed headway/*.py headway/py.typed
var FS embed.FS

// versionForm is what PEP 440 accepts in its normal form, without epochs.
const versionForm = `^[0-9]+(\.[0-9]+)*((a|b|rc)[0-9]+)?(\.post[0-9]+)?(\.dev[0-9]+)?(\+[a-z0-9]+(\.[a-z0-9]+)*)?$`

// WriteWheel writes the package as a wheel: equal bytes for an equal version, on every machine. version is that of
// the program, with or without its leading v ("v0.3.1", "0.4.0.dev1"); one that PEP 440 refuses is an error and
// nothing is written. It returns the file name that installers insist on.
func WriteWheel(w io.Writer, version string) (filename string, err error) {
	version = strings.TrimPrefix(version, "v")
	if ok, _ := regexp.MatchString(versionForm, version); !ok {
		return "", fmt.Errorf("version %q cannot name a wheel: expected digits and dots as in 1.2.3, 1.2.3rc1 or 1.2.3.dev4",
			version)
	}
	files, err := sources()
	if err != nil {
		return "", err
	}
	info := "headway-" + version + ".dist-info/"
	files = append(files,
		file{info + "METADATA", []byte("Metadata-Version: 2.1\nName: headway\nVersion: " + version +
			"\nSummary: Makes training runs finish on machines that may vanish\nLicense: Apache-2.0\n" +
			"Requires-Python: >=3.9\n")},
		file{info + "WHEEL", []byte("Wheel-Version: 1.0\nGenerator: headway " + version +
			"\nRoot-Is-Purelib: true\nTag: py3-none-any\n")})
	files = append(files, file{info + "RECORD", recordOf(files, info)})
	z := zip.NewWriter(w)
	for _, f := range files {
		if err := store(z, f); err != nil {
			return "", fmt.Errorf("write wheel: %w", err)
		}
	}
	if err := z.Close(); err != nil {
		return "", fmt.Errorf("write wheel: %w", err)
	}
	return "headway-" + version + "-py3-none-any.whl", nil
}

// file is one member of a wheel.
type file struct {
	path string
	data []byte
}

// sources reads the embedded files, sorted by path.
func sources() ([]file, error) {
	var files []file
	err := fs.WalkDir(FS, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := FS.ReadFile(path)
		files = append(files, file{path, b})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the embedded Python package: %w", err)
	}
	return files, nil
}

// recordOf lists every file with hash and size, and the list itself without, as the wheel format has it.
func recordOf(files []file, info string) []byte {
	var b bytes.Buffer
	for _, f := range files {
		sum := sha256.Sum256(f.data)
		fmt.Fprintf(&b, "%s,sha256=%s,%d\n", f.path, base64.RawURLEncoding.EncodeToString(sum[:]), len(f.data))
	}
	fmt.Fprintf(&b, "%sRECORD,,\n", info)
	return b.Bytes()
}

// store adds f uncompressed (a compressor's output may change with the toolchain) and with the oldest time that a
// zip can hold.
func store(z *zip.Writer, f file) error {
	h := &zip.FileHeader{Name: f.path, Method: zip.Store, Modified: time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)}
	h.SetMode(0o644)
	w, err := z.CreateHeader(h)
	if err != nil {
		return err
	}
	_, err = w.Write(f.data)
	return err
}
