package repo

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gitssh "github.com/go-git/go-git/v5/plumbing/transport/ssh"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// sshHost is an SSH server on loopback with an ed25519 and an RSA host key, which lets one user key in and hands
// upload-pack to the git binary.
type sshHost struct {
	addr    string
	ed, rsa ssh.Signer
	keyFile string
	let     atomic.Int64 // users that came in
}

func serveSSH(t *testing.T) *sshHost {
	t.Helper()
	h := &sshHost{keyFile: filepath.Join(t.TempDir(), "key")}
	userPub, user, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(user, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(h.keyFile, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	allowed, err := ssh.NewPublicKey(userPub)
	if err != nil {
		t.Fatal(err)
	}
	c := &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		if string(key.Marshal()) != string(allowed.Marshal()) {
			return nil, os.ErrPermission
		}
		h.let.Add(1)
		return &ssh.Permissions{}, nil
	}}
	h.ed, h.rsa = signer(t, false), signer(t, true)
	c.AddHostKey(h.rsa)
	c.AddHostKey(h.ed)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	h.addr = l.Addr().String()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go session(conn, c)
		}
	}()
	return h
}

func signer(t *testing.T, old bool) ssh.Signer {
	t.Helper()
	var key any
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	key = ed
	if old {
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	}
	if err != nil {
		t.Fatal(err)
	}
	s, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func session(conn net.Conn, c *ssh.ServerConfig) {
	defer conn.Close()
	_, channels, requests, err := ssh.NewServerConn(conn, c)
	if err != nil {
		return
	}
	go ssh.DiscardRequests(requests)
	for ch := range channels {
		channel, requests, err := ch.Accept()
		if err != nil {
			return
		}
		go func() {
			defer channel.Close()
			for rq := range requests {
				var ask struct{ Command string }
				if rq.Type != "exec" || ssh.Unmarshal(rq.Payload, &ask) != nil {
					_ = rq.Reply(false, nil)
					continue
				}
				_ = rq.Reply(true, nil)
				cmd := exec.Command("git", "upload-pack", strings.Trim(strings.TrimPrefix(ask.Command, "git-upload-pack "), "'"))
				cmd.Stdout, cmd.Stderr = channel, channel.Stderr()
				code := byte(128)
				if in, err := cmd.StdinPipe(); err == nil && cmd.Start() == nil {
					go func() { _, _ = io.Copy(in, channel) }() // ends with the channel, not with the command
					if cmd.Wait() == nil {
						code = 0
					}
				}
				_, _ = channel.SendRequest("exit-status", false, []byte{0, 0, 0, code})
				return
			}
		}()
	}
}

func (h *sshHost) knownHosts(t *testing.T, lines ...string) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "known_hosts")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return []string{file}
}

func TestSSH(t *testing.T) {
	o := newOrigin(t)
	o.commit("main", "a", files("x", "1"))
	h := serveSSH(t)
	line := func(s ssh.Signer) string {
		return knownhosts.Line([]string{knownhosts.Normalize(h.addr)}, s.PublicKey())
	}
	other := knownhosts.Line([]string{"other.example.com"}, signer(t, false).PublicKey())
	for name, c := range map[string]struct {
		known []string
		key   string
		path  string
		want  string
		text  string
	}{
		"only the ed25519 key is known": {[]string{other, line(h.ed)}, h.keyFile, o.dir, "advanced >a", ""},
		"only the RSA key is known":     {[]string{line(h.rsa), other}, h.keyFile, o.dir, "advanced >a", ""},
		"another key is known":          {[]string{line(signer(t, false))}, h.keyFile, o.dir, "unreachable  HostKeyChanged", "ask the host's owner"},
		"no key is known":               {[]string{other}, h.keyFile, o.dir, "unreachable  HostKeyUnknown", "ssh-keyscan"},
		"no such repository":            {[]string{line(h.ed)}, h.keyFile, o.dir + "x", "unreachable  RemoteNotFound", "check the address"},
		"no key file":                   {[]string{line(h.ed)}, "/no/such/key", o.dir, "unreachable  AuthFailed", "check the path"},
	} {
		t.Run(name, func(t *testing.T) {
			r := watch(t, Options{Remote: "ssh://git@" + h.addr + c.path, Branch: "main", Timeout: 10 * time.Second, Auth: Auth{KeyFile: c.key, KnownHosts: h.knownHosts(t, c.known...)}})
			for range 3 {
				got := r.Poll(t.Context())
				if u, ok := got.(Unreachable); ok && !strings.Contains(u.Err.Error(), c.text) {
					t.Errorf("error %v (%v), want %q", u.Err, u.Err.Err, c.text)
				}
				if shape(got) != c.want && shape(got) != "unchanged a" {
					t.Errorf("got %q, want %q: %+v", shape(got), c.want, got)
				}
			}
		})
	}
}

// TestAHundredConnections: a host is known by whichever of its keys stands in known_hosts, beside other hosts with other sorts of
// keys, a hundred times of a hundred. One whose key has changed is refused as often: nobody logs in there, the age of the
// trouble stays, and the words stay the same, so that whoever says them once says them once.
func TestAHundredConnections(t *testing.T) {
	o := newOrigin(t)
	o.commit("main", "a", files("x", "1"))
	h := serveSSH(t)
	at := func(host string, s ssh.Signer) string {
		return knownhosts.Line([]string{knownhosts.Normalize(host)}, s.PublicKey())
	}
	edElsewhere, rsaElsewhere := at("ed.example.com", signer(t, false)), at("rsa.example.com", signer(t, true))
	for name, c := range map[string]struct {
		known []string
		want  string
		own   bool // the person's own file, which nobody named
	}{
		"by its ed25519 key":             {[]string{rsaElsewhere, at(h.addr, h.ed), edElsewhere}, "", false},
		"by its RSA key":                 {[]string{edElsewhere, at(h.addr, h.rsa), rsaElsewhere}, "", false},
		"changed":                        {[]string{edElsewhere, at(h.addr, signer(t, false)), rsaElsewhere}, "unreachable  HostKeyChanged", false},
		"changed, RSA":                   {[]string{rsaElsewhere, at(h.addr, signer(t, true)), edElsewhere}, "unreachable  HostKeyChanged", false},
		"by its ed25519 key, file unset": {[]string{rsaElsewhere, at(h.addr, h.ed), edElsewhere}, "", true},
		"by its RSA key, file unset":     {[]string{edElsewhere, at(h.addr, h.rsa), rsaElsewhere}, "", true},
		"changed, file unset":            {[]string{at(h.addr, signer(t, false))}, "unreachable  HostKeyChanged", true},
		"unknown, file unset":            {[]string{edElsewhere}, "unreachable  HostKeyUnknown", true},
	} {
		t.Run(name, func(t *testing.T) {
			a := Auth{KeyFile: h.keyFile, KnownHosts: h.knownHosts(t, c.known...)}
			if c.own {
				t.Setenv("SSH_KNOWN_HOSTS", a.KnownHosts[0])
				a.KnownHosts = nil
			}
			r := watch(t, Options{Remote: "ssh://git@" + h.addr + o.dir, Branch: "main", Auth: a})
			let, first := h.let.Load(), Unreachable{}
			for i := range 100 {
				got := r.Poll(t.Context())
				if s := shape(got); s != c.want && (c.want != "" || s != "unchanged a" && s != "advanced >a") {
					t.Fatalf("connection %d: %q, want %q: %+v", i, s, c.want, got)
				}
				u, away := got.(Unreachable)
				if i == 0 {
					first = u
				}
				if away && (!u.Since.Equal(first.Since) || u.Err.Error() != first.Err.Error()) {
					t.Fatalf("connection %d: since %v, %v; at first since %v, %v", i, u.Since, u.Err, first.Since, first.Err)
				}
			}
			if n := h.let.Load() - let; c.want != "" && n != 0 || c.want == "" && n < 100 {
				t.Errorf("%d times somebody logged in", n)
			}
		})
	}
}

// sshNames is a person's ssh config: one name for a host and port.
type sshNames struct{ name, host, port string }

func (n sshNames) Get(alias, key string) string {
	return map[string]string{n.name + " Hostname": n.host, n.name + " Port": n.port}[alias+" "+key]
}

// TestAHostByItsNameInSSHConfig: what counts is the line of the host that the name stands for.
func TestAHostByItsNameInSSHConfig(t *testing.T) {
	o := newOrigin(t)
	o.commit("main", "a", files("x", "1"))
	h := serveSSH(t)
	host, port, err := net.SplitHostPort(h.addr)
	if err != nil {
		t.Fatal(err)
	}
	before := gitssh.DefaultSSHConfig
	t.Cleanup(func() { gitssh.DefaultSSHConfig = before })
	gitssh.DefaultSSHConfig = sshNames{"plans", host, port}
	for _, key := range []ssh.Signer{h.ed, h.rsa} {
		a := Auth{KeyFile: h.keyFile, KnownHosts: h.knownHosts(t, knownhosts.Line([]string{knownhosts.Normalize(h.addr)}, key.PublicKey()))}
		r := watch(t, Options{Remote: "git@plans:" + o.dir, Branch: "main", Auth: a})
		expect(t, r, "advanced >a")
	}
}

func TestSSHWrongUserKey(t *testing.T) {
	o := newOrigin(t)
	h, stranger := serveSSH(t), serveSSH(t)
	known := h.knownHosts(t, knownhosts.Line([]string{knownhosts.Normalize(h.addr)}, h.ed.PublicKey()))
	r := watch(t, Options{Remote: "ssh://git@" + h.addr + o.dir, Branch: "main", Auth: Auth{KeyFile: stranger.keyFile, KnownHosts: known}})
	expect(t, r, "unreachable  AuthFailed")
	t.Setenv("SSH_AUTH_SOCK", "")
	agent := watch(t, Options{Remote: "git@127.0.0.1:team/x.git", Branch: "main", Auth: Auth{KnownHosts: known}})
	if got := expect(t, agent, "unreachable  AuthFailed").(Unreachable); !strings.Contains(got.Err.Error(), "ssh-add") {
		t.Errorf("error: %v", got.Err)
	}
}

// TestQuietPollOverSSH: a poll that finds nothing new asks once and fetches nothing, whatever the transport.
func TestQuietPollOverSSH(t *testing.T) {
	o := newOrigin(t)
	o.commit("main", "a", files("x", "1"))
	h := serveSSH(t)
	known := h.knownHosts(t, knownhosts.Line([]string{knownhosts.Normalize(h.addr)}, h.ed.PublicKey()))
	r := watch(t, Options{Remote: "ssh://git@" + h.addr + o.dir, Branch: "main", Auth: Auth{KeyFile: h.keyFile, KnownHosts: known}})
	expect(t, r, "advanced >a")
	for range 5 {
		expect(t, r, "unchanged a")
	}
	if got := r.Counters(); got.Lists != 6 || got.Fetches != 1 {
		t.Errorf("five quiet polls: %+v", got)
	}
}

// TestAnSSHHostThatStalls: a host that takes connections and says nothing holds no poll longer than its deadline, however often it is
// asked; no more than a few connections are left open to it, and once they are gone it is asked anew.
func TestAnSSHHostThatStalls(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // nobody accepts: the kernel does, and that is all
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	h := serveSSH(t)
	known := h.knownHosts(t, knownhosts.Line([]string{knownhosts.Normalize(l.Addr().String())}, h.ed.PublicKey()))
	r := watch(t, Options{Remote: "ssh://git@" + l.Addr().String() + "/x.git", Branch: "main", Timeout: 50 * time.Millisecond, Auth: Auth{KeyFile: h.keyFile, KnownHosts: known}})
	poll := func() string {
		t.Helper()
		polled := make(chan Outcome, 1)
		go func() { polled <- r.Poll(t.Context()) }()
		select {
		case o := <-polled:
			got, away := o.(Unreachable)
			if !away || got.Err.Class != Offline {
				t.Fatalf("poll: %s (%+v)", shape(o), o)
			}
			return got.Err.Error()
		case <-time.After(20 * time.Second):
			t.Fatal("a poll with a deadline of 0.05 s does not return while the host says nothing")
			return ""
		}
	}
	for i := range maxCalls + 2 {
		if said := poll(); !strings.Contains(said, "no answer in time") || strings.Contains(said, "8 questions before") != (i >= maxCalls) {
			t.Fatalf("poll %d: %s", i, said)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); !strings.Contains(poll(), "refused"); {
		if time.Now().After(deadline) {
			t.Fatal("the host is not asked any more, though none of its connections is open")
		}
	}
}

// TestACallThatWasLeftWritesNothing: a fetch that nobody waits for any more stops before it looks at the storage, and one that has
// come that far is waited for.
func TestACallThatWasLeftWritesNothing(t *testing.T) {
	b := &bounded{}
	if !b.gate.leave() {
		t.Error("a call that has not begun is waited for")
	}
	if refs, err := b.IterReferences(); err == nil || refs != nil {
		t.Error("a call that was left behind goes on")
	}
	var g gate
	if err := g.enter(); err != nil || g.leave() {
		t.Errorf("a call that has begun is left behind: %v", err)
	}
	r := remote{url: "ssh://x", calls: make(chan struct{}, 1)}
	ctx, over := context.WithCancel(t.Context())
	wrote := false
	err := r.within(ctx, &g, func() error { over(); wrote = true; return nil })
	if err != nil || !wrote {
		t.Errorf("it was not waited for: %v", err)
	}
}
