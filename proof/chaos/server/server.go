//go:build linux

// Package server runs the S3 server of the tests (.ci/s3server) as a process that can be killed and started again on the
// same data and the same port, and reads its files behind its back: what is in them is what the store holds, whatever an
// answer that was lost may have said.
package server

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/headway-run/headway/proof/chaos/kin"
)

// Server is one server over one folder.
type Server struct {
	Access, Secret, Region, Bucket string

	binary, root, port string
	family             *kin.Family
	cmd                *exec.Cmd
	in                 io.Closer // its end ends the server, so it can't outlive us
}

// gatewayEnv is what .ci/s3server reads: with it the binary serves alone, until its standard input ends.
const gatewayEnv = "HEADWAY_S3SERVER_GATEWAY"

// New makes the folders below root and starts the server; it has answered when New returns.
func New(f *kin.Family, binary, root string) (*Server, error) {
	s := &Server{Access: token(8), Secret: token(20), Region: "us-east-1", Bucket: "headway", binary: binary, root: root, family: f}
	for _, d := range []string{"data/" + s.Bucket, "meta", "users"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o700); err != nil {
			return nil, err
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") // the server takes no listener; the port is free again at once
	if err != nil {
		return nil, err
	}
	_, s.port, _ = net.SplitHostPort(l.Addr().String())
	if err := l.Close(); err != nil {
		return nil, err
	}
	return s, s.Start()
}

func token(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// Addr is host:port.
func (s *Server) Addr() string { return "127.0.0.1:" + s.port }

// URL is the store below a prefix, as the product wants it, at this server or at a proxy before it.
func (s *Server) URL(addr, prefix string) string {
	return fmt.Sprintf("s3://%s/%s?endpoint=http://%s&region=%s&path_style=true", s.Bucket, prefix, addr, s.Region)
}

// Environ has the store's keys as the product reads them.
func (s *Server) Environ() []string {
	return []string{"AWS_ACCESS_KEY_ID=" + s.Access, "AWS_SECRET_ACCESS_KEY=" + s.Secret, "AWS_EC2_METADATA_DISABLED=true",
		"AWS_CONFIG_FILE=" + os.DevNull, "AWS_SHARED_CREDENTIALS_FILE=" + os.DevNull}
}

// Start starts it, on the data that is there.
func (s *Server) Start() error {
	raw, err := json.Marshal(map[string]any{"Root": s.root, "Port": s.port,
		"Ready": map[string]string{"access": s.Access, "secret": s.Secret, "region": s.Region, "bucket": s.Bucket}})
	if err != nil {
		return err
	}
	words, err := os.OpenFile(filepath.Join(s.root, "server.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = words.Close() }() // the child has its own
	cmd := exec.Command(s.binary)
	cmd.Env, cmd.Stderr, cmd.Dir = append(os.Environ(), gatewayEnv+"="+string(raw)), words, s.root
	if s.in, err = cmd.StdinPipe(); err != nil {
		return err
	}
	if err := s.family.Start(cmd); err != nil {
		return err
	}
	s.cmd = cmd
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if conn, err := net.Dial("tcp", s.Addr()); err == nil {
			return conn.Close()
		}
	}
	s.Kill()
	return fmt.Errorf("the S3 server did not answer within 30 s; its words are in %s", words.Name())
}

// Kill ends it with SIGKILL.
func (s *Server) Kill() {
	_ = s.cmd.Process.Kill() // it had ended: as well
	_ = s.in.Close()
	_ = s.family.Wait(s.cmd)
}

// Stored reads a key from the server's files.
func (s *Server) Stored(prefix, key string) (body []byte, found bool) {
	b, err := os.ReadFile(s.file(prefix, key))
	return b, err == nil
}

// Forget removes what is below a prefix.
func (s *Server) Forget(prefix string) error { return os.RemoveAll(s.file(prefix, "")) }

func (s *Server) file(prefix, key string) string {
	return filepath.Join(s.root, "data", s.Bucket, prefix, filepath.FromSlash(key))
}

// Put writes a key into the server's files, behind everybody's back.
func (s *Server) Put(prefix, key string, body []byte) error {
	if err := os.MkdirAll(filepath.Dir(s.file(prefix, key)), 0o755); err != nil {
		return err
	}
	return os.WriteFile(s.file(prefix, key), body, 0o644)
}
