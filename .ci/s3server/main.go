// Command s3server is the real S3 server of the tests: versitygw over a temporary folder, on free loopback ports, once
// over http and once over TLS (the SDK speaks another wire format there), two processes over one folder. It is a module
// of its own, so that its many dependencies never reach the product.
//
//	s3server               prints one JSON line (see ready) and serves until SIGINT or SIGTERM
//	s3server COMMAND …     runs the command with that line in HEADWAY_TEST_S3, and exits with its exit code
package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

// ready is the one line on stdout.
type ready struct {
	Endpoint    string `json:"endpoint"`     // http
	TLSEndpoint string `json:"tls_endpoint"` // https, certificate signed by CA
	Access      string `json:"access"`
	Secret      string `json:"secret"`
	Region      string `json:"region"`
	Bucket      string `json:"bucket"`
	CA          string `json:"ca"` // PEM file
	// Users have no rights but what a bucket's policy gives them: their secrets, by access key.
	Users map[string]string `json:"users"`
}

// gatewayEnv carries a gateway's settings to the child process that serves it: versitygw runs once per process.
const gatewayEnv = "HEADWAY_S3SERVER_GATEWAY"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "s3server:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func run(ctx context.Context, command []string) (int, error) {
	if raw := os.Getenv(gatewayEnv); raw != "" {
		return 0, gateway(ctx, raw)
	}
	root, err := os.MkdirTemp("", "headway-s3server-")
	if err != nil {
		return 1, err
	}
	defer func() { _ = os.RemoveAll(root) }()
	r := ready{Access: token(8), Secret: token(20), Region: "us-east-1", Bucket: "headway"}
	for _, d := range []string{"data/" + r.Bucket, "meta", "tls", "users"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o700); err != nil {
			return 1, err
		}
	}
	if r.Users, err = people(filepath.Join(root, "users"), r); err != nil {
		return 1, err
	}
	if r.CA, err = certify(filepath.Join(root, "tls")); err != nil {
		return 1, err
	}
	for _, secure := range []bool{false, true} {
		port, stop, err := spawn(ctx, settings{Root: root, Ready: r, TLS: secure})
		if err != nil {
			return 1, err
		}
		defer stop()
		if secure {
			r.TLSEndpoint = "https://127.0.0.1:" + port
		} else {
			r.Endpoint = "http://127.0.0.1:" + port
		}
	}
	line, err := json.Marshal(r)
	if err != nil {
		return 1, err
	}
	if len(command) == 0 {
		fmt.Println(string(line))
		<-ctx.Done()
		return 0, nil
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "HEADWAY_TEST_S3="+string(line))
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return max(exit.ExitCode(), 1), nil
	}
	return 0, err
}

// people makes the users that the tests give rights to.
func people(dir string, r ready) (map[string]string, error) {
	iam, err := auth.NewInternal(auth.Account{Access: r.Access, Secret: r.Secret, Role: auth.RoleAdmin}, dir)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, name := range []string{"research", "lane", "worker"} {
		out[name] = token(20)
		if err := iam.CreateAccount(auth.Account{Access: name, Secret: out[name], Role: auth.RoleUser}); err != nil {
			return nil, err
		}
	}
	return out, iam.Shutdown()
}

func token(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// settings of one gateway process.
type settings struct {
	Root  string
	Ready ready
	TLS   bool
	Port  string
}

// spawn starts a gateway process and waits until it answers. It dies with this one: its stdin ends.
func spawn(ctx context.Context, s settings) (port string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	_, s.Port, _ = net.SplitHostPort(l.Addr().String())
	_ = l.Close() // versitygw takes no listener, and does not tell the port it got
	raw, err := json.Marshal(s)
	if err != nil {
		return "", nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), gatewayEnv+"="+string(raw))
	words, err := os.OpenFile(filepath.Join(s.Root, "gateway.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = words.Close() }()
	cmd.Stderr = words
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	gone := make(chan error, 1)
	go func() { gone <- cmd.Wait() }()
	stop = func() { _ = in.Close(); _ = cmd.Process.Kill(); <-gone }
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); {
		select {
		case err := <-gone:
			said, _ := os.ReadFile(words.Name())
			return "", nil, fmt.Errorf("the gateway ended at once: %w\n%s", err, said)
		case <-ctx.Done():
			stop()
			return "", nil, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
		if conn, err := net.Dial("tcp", "127.0.0.1:"+s.Port); err == nil {
			_ = conn.Close()
			return s.Port, stop, nil
		}
	}
	stop()
	return "", nil, errors.New("the gateway did not answer within a minute")
}

// gateway is the child: it serves until its stdin ends.
func gateway(ctx context.Context, raw string) error {
	var s settings
	if err := json.Unmarshal([]byte(raw), &s); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	be, err := backend(s.Root)
	if err != nil {
		return err
	}
	c := &embedgw.Config{
		RootUserAccess: s.Ready.Access, RootUserSecret: s.Ready.Secret, Region: s.Ready.Region,
		Ports: []string{"127.0.0.1:" + s.Port}, MaxConnections: 4096, MaxRequests: 4096, MultipartMaxParts: 10000,
		Quiet: true, KeepAlive: true, DisableACLs: true, IAMDir: filepath.Join(s.Root, "users"),
	}
	if s.TLS {
		c.CertFile, c.KeyFile = filepath.Join(s.Root, "tls", "cert.pem"), filepath.Join(s.Root, "tls", "key.pem")
	}
	if err := os.MkdirAll(c.IAMDir, 0o700); err != nil { // a root made elsewhere may have no users
		return err
	}
	os.Stdout = nil // whatever the library prints is not our one line
	return embedgw.RunVersityGW(ctx, be, c)
}

// backend keeps metadata in extended attributes, so that an object and its ETag are one file; where the temporary folder
// has none, in side files.
func backend(root string) (*posix.Posix, error) {
	data := filepath.Join(root, "data")
	if (meta.XattrMeta{}).Test(data) == nil {
		return posix.New(data, meta.XattrMeta{}, posix.PosixOpts{})
	}
	side := filepath.Join(root, "meta")
	m, err := meta.NewSideCar(side)
	if err != nil {
		return nil, err
	}
	return posix.New(data, m, posix.PosixOpts{SideCarDir: side})
}
