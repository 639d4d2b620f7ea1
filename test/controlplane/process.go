package controlplane

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
)

// process is one component running on this host. It dies with us, however we die.
type process struct {
	name    string
	cmd     *exec.Cmd
	log     string        // path of its output, appended to
	done    chan struct{} // closed once it has ended and, where that is due, onExit has returned
	killing atomic.Bool   // its end is our doing
}

// startProcess starts a binary with its output going to log. onExit is called if it ends before kill.
func startProcess(binary, log string, environment, args []string, onExit func(error)) (*process, error) {
	name := filepath.Base(binary)
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log of %s: %w", name, err)
	}
	defer out.Close() // the child has its own descriptor
	cmd := exec.Command(binary, args...)
	cmd.Dir = os.TempDir()
	// No proxies, no stray ETCD_* or KUBECONFIG. Lives are short: collecting as often as usual takes a tenth more.
	cmd.Env = append([]string{"HOME=" + cmd.Dir, "TMPDIR=" + cmd.Dir, "GOGC=400"}, environment...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = dieWithParent()
	if err := spawn(cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &process{name: name, cmd: cmd, log: log, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		_ = cmd.Wait() // says no more than ProcessState
		if !p.killing.Load() {
			onExit(fmt.Errorf("%s ended by itself (%s), and wrote last:\n%s", name, cmd.ProcessState, p.tail()))
		}
	}()
	return p, nil
}

// kill ends the process at once, stopped or not, and waits for its end. SIGTERM is no use here: an API server with open
// watches takes the better part of a minute to obey it. Killing twice is the same as killing once.
func (p *process) kill() {
	p.killing.Store(true)
	_ = p.cmd.Process.Kill() // fails only when it has ended
	<-p.done
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

func (p *process) signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("send %s to %s: %w", s, p.name, err)
	}
	return nil
}

// tail returns the last lines the process wrote.
func (p *process) tail() string {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return tail(data, 25)
}

func tail(data []byte, lines int) string {
	data = bytes.TrimRight(data, "\n")
	all := bytes.Split(data, []byte("\n"))
	return string(bytes.Join(all[max(0, len(all)-lines):], []byte("\n")))
}

// spawn starts cmd on an operating system thread that lives as long as this process, because the kernel delivers the
// parent-death signal when the starting *thread* ends, see prctl(2) PR_SET_PDEATHSIG.
func spawn(cmd *exec.Cmd) error {
	result := make(chan error)
	spawner() <- func() { result <- cmd.Start() }
	return <-result
}

var spawner = sync.OnceValue(func() chan<- func() {
	starts := make(chan func())
	go func() {
		runtime.LockOSThread()
		for start := range starts {
			start()
		}
	}()
	return starts
})
