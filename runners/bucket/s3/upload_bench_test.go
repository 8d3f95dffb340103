//go:build s3server

package s3_test

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/s3"
)

// BenchmarkUploadBesideS5cmd uploads one file by our Put and by s5cmd in turn, over one server, and reports the medians in
// MiB/s and their ratio. .ci/bench/upload runs it.
func BenchmarkUploadBesideS5cmd(b *testing.B) {
	configs, s := real(b)
	scheme := cmp.Or(os.Getenv("HEADWAY_BENCH_SCHEME"), "http")
	c := configs[scheme]
	mib, err := strconv.ParseInt(cmp.Or(os.Getenv("HEADWAY_BENCH_MIB"), "1024"), 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	file := filepath.Join(b.TempDir(), "milestone")
	if err := fill(file, mib<<20); err != nil {
		b.Fatal(err)
	}
	theirs := []string{"--endpoint-url", c.Endpoint, "cp", file, "s3://" + s.Bucket + "/bench/theirs"}
	if scheme == "https" {
		theirs = append([]string{"--no-verify-ssl"}, theirs...)
	}
	var our, their []time.Duration
	for b.Loop() {
		our = append(our, timed(b, func() error { return upload(b, c, file) }))
		their = append(their, timed(b, func() error {
			cmd := exec.CommandContext(b.Context(), os.Getenv("HEADWAY_S5CMD"), theirs...)
			cmd.Env = append(os.Environ(), "AWS_ACCESS_KEY_ID="+s.Access, "AWS_SECRET_ACCESS_KEY="+s.Secret, "AWS_REGION="+s.Region)
			out, err := cmd.CombinedOutput()
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		}))
	}
	a, z := median(our).Seconds(), median(their).Seconds()
	b.ReportMetric(float64(mib)/a, "ours-MiB/s")
	b.ReportMetric(float64(mib)/z, "s5cmd-MiB/s")
	b.ReportMetric(z/a, "ratio")
	b.Logf("%s, %d MiB: ours %v, s5cmd %v", scheme, mib, our, their)
}

func timed(b *testing.B, f func() error) time.Duration {
	b.Helper()
	start := time.Now()
	if err := f(); err != nil {
		b.Fatal(err)
	}
	return time.Since(start)
}

func median(d []time.Duration) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[len(d)/2]
}

// upload opens the store anew, as a process does that has just started.
func upload(b *testing.B, c s3.Config, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	_, err = open(b, c).Put(b.Context(), "bench/ours", io.NewSectionReader(f, 0, fi.Size()), bucket.Always())
	return err
}

func fill(file string, size int64) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	if _, err := io.CopyN(f, rand.Reader, size); err != nil {
		return err
	}
	return f.Close()
}
