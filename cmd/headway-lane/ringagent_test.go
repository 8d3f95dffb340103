package main

import (
	"bufio"
	"net"
	"os/exec"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// agents are the ring agents of one script.
type agents struct {
	program string
	running map[string]*exec.Cmd
}

// ringagent NAME MODEL: an agent of the ring simulator that has a file as its model, in a process of its own. Its address is in
// the variable NAME; one that runs already is killed, and the new one is at the same place.
func ringAgent(ts *testscript.TestScript, neg bool, args []string) {
	all := ts.Value("agents").(*agents)
	stop := func() {
		if c := all.running[args[0]]; c != nil {
			_ = c.Process.Kill()
			_ = c.Wait()
			delete(all.running, args[0])
		}
	}
	stop()
	ts.Defer(stop)
	for range 50 { // somebody else may have the port by now
		at := ts.Getenv(args[0])
		if at == "" {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			ts.Check(err)
			at = "tcp://" + l.Addr().String()
			ts.Check(l.Close())
		}
		c := exec.Command(all.program, "agent", at, at, ts.MkAbs(args[1]))
		out, err := c.StdoutPipe()
		ts.Check(err)
		ts.Check(c.Start())
		all.running[args[0]] = c
		if line, _ := bufio.NewReader(out).ReadString('\n'); strings.Contains(line, "P4_EVENT_AGENT_READY") {
			ts.Setenv(args[0], at)
			return
		}
		stop()
	}
	ts.Fatalf("no agent starts")
}
