package world

import (
	"context"
	"time"
)

// role is what a process is.
type role uint8

const (
	aDispatcher role = iota
	aWorker
	anOperator
	aCollector

	roles = iota // how many
)

// life is one life of one process, and its only way to the world: a bucket.Bucket, and a gate for calls of platforms
// and of Git. Where a process is restarted, that is another life.
type life struct {
	w    *World
	role role
	name string
	kill context.CancelFunc
	gone chan struct{} // closed: dead

	dead   bool          // under World.mu; the scheduler alone writes it
	paused time.Duration // frozen until then
	denied time.Duration // the store takes its credentials no more until then
	dies   func()        // what else its death means; may be nil
	work   string        // of a worker

	unheard map[string]bool // keys of puts that it made, and whose answers it never got
}

func (w *World) newLife(r role, name string, kill context.CancelFunc) *life {
	l := &life{w: w, role: r, name: name, kill: kill, gone: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lives[l] = true
	return l
}

// end ends a life at once: nothing more is heard from it, and it hears nothing.
func (w *World) end(l *life) {
	if l.dead {
		return
	}
	w.mu.Lock()
	l.dead = true
	delete(w.lives, l)
	w.mu.Unlock()
	close(l.gone)
	if l.kill != nil {
		l.kill()
	}
}

// crash is a death that nobody wanted.
func (w *World) crash(l *life) {
	if l.dead {
		return
	}
	w.fired(map[role]Fault{aDispatcher: CrashDispatcher, aWorker: CrashWorker, anOperator: CrashOperator, aCollector: CrashCollector}[l.role])
	w.note(l, "dies")
	w.mix(w.now(), "dies", l, nil)
	w.end(l)
	if l.dies != nil {
		l.dies()
	}
}

// pause freezes a process: what it has sent and what is sent to it waits.
func (w *World) pause(l *life, d time.Duration) {
	if l.dead || l.paused > w.now() {
		return
	}
	w.fired(map[role]Fault{aDispatcher: PauseDispatcher, aWorker: PauseWorker, anOperator: PauseOperator, aCollector: PauseCollector}[l.role])
	w.note(l, "pauses for %v", d)
	l.paused = w.now() + d
}

// deny makes the store refuse a process's credentials for a while.
func (w *World) deny(l *life, d time.Duration) {
	w.note(l, "its credentials are refused for %v", d)
	l.denied = w.now() + d
}
