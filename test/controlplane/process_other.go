//go:build unix && !linux

package controlplane

import "syscall"

// dieWithParent leaves a child in our process group: without a parent-death signal, ^C has to reach it directly, and a
// killed test run leaves its control planes behind.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

// awaitStop does nothing: a process that was just sent SIGSTOP may still answer for a moment.
func (p *process) awaitStop() error { return nil }
