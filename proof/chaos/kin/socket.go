//go:build linux

package kin

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"syscall"
	"time"
)

// Behind finds the process of the family that has the far end of a TCP connection over IPv4 of this machine: client and
// server are host:port as the server sees them. Processes whose working folder is not below dir are not asked. One that
// was killed meanwhile is not found: its socket is nobody's.
func (f *Family) Behind(client, server, dir string) (*Proc, error) {
	inode, err := inode(client, server)
	if err != nil {
		return nil, err
	}
	asked := time.Now()
	newer := func() ([]*Proc, error) { return f.since(asked) }
	for _, look := range []func() ([]*Proc, error){f.Recent, newer} { // it may be younger than the last look
		alive, err := look()
		if err != nil {
			return nil, err
		}
		for _, p := range alive {
			if p.In(dir) && p.holds(inode) {
				now := *p
				now.introduce() // at the last look it may not have been itself yet
				return &now, nil
			}
		}
	}
	return nil, fmt.Errorf("no process below %s holds socket %d", dir, inode)
}

func (p *Proc) holds(inode uint32) bool {
	dir := "/proc/" + strconv.Itoa(p.PID) + "/fd/"
	fds, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	want := fmt.Sprintf("socket:[%d]", inode)
	for _, fd := range fds {
		if to, err := os.Readlink(dir + fd.Name()); err == nil && to == want {
			return true
		}
	}
	return false
}

// Of the kernel's sock_diag interface: family, message type, and where things stand in question and answer.
const (
	sockDiag     = 4  // NETLINK_SOCK_DIAG
	byFamily     = 20 // SOCK_DIAG_BY_FAMILY
	headerLength = 16
	askLength    = headerLength + 56
	inodeAt      = headerLength + 68
)

// inode asks the kernel for one socket by its two ends. The table in /proc/net/tcp says the same and is read whole each
// time.
func inode(local, remote string) (uint32, error) {
	l, errL := netip.ParseAddrPort(local)
	r, errR := netip.ParseAddrPort(remote)
	if errL != nil || errR != nil || !l.Addr().Is4() || !r.Addr().Is4() {
		return 0, fmt.Errorf("%q and %q are not two ends over IPv4", local, remote)
	}
	s, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, sockDiag)
	if err != nil {
		return 0, fmt.Errorf("ask the kernel for a socket: %w", err)
	}
	defer func() { _ = syscall.Close(s) }()
	q := make([]byte, askLength)
	binary.NativeEndian.PutUint32(q, askLength)
	binary.NativeEndian.PutUint16(q[4:], byFamily)
	binary.NativeEndian.PutUint16(q[6:], syscall.NLM_F_REQUEST)
	body := q[headerLength:]
	body[0], body[1] = syscall.AF_INET, syscall.IPPROTO_TCP
	binary.NativeEndian.PutUint32(body[4:], ^uint32(0)) // in any state
	binary.BigEndian.PutUint16(body[8:], l.Port())
	binary.BigEndian.PutUint16(body[10:], r.Port())
	copy(body[12:], l.Addr().AsSlice())
	copy(body[28:], r.Addr().AsSlice())
	for i := range 8 {
		body[48+i] = 0xff // no cookie
	}
	if err := syscall.Sendto(s, q, 0, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}); err != nil {
		return 0, fmt.Errorf("ask the kernel for a socket: %w", err)
	}
	a := make([]byte, 4096)
	n, _, err := syscall.Recvfrom(s, a, 0)
	if err != nil || n < inodeAt+4 || binary.NativeEndian.Uint16(a[4:]) != byFamily {
		return 0, fmt.Errorf("the kernel knows no socket from %s to %s (%v)", local, remote, err)
	}
	return binary.NativeEndian.Uint32(a[inodeAt:]), nil
}
