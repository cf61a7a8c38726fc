// SPDX-License-Identifier: Apache-2.0

package main

import (
	"runtime"
	"syscall"
)

// A control thread does nothing but sleep from one millisecond to the next, by
// the kernel's own call, not by the runtime's timers: what it comes too late
// the machine itself took away.
type control struct {
	quit        chan bool
	done        chan bool
	lagMax, cpu int64
}

func threadCPU() int64 {
	const rusageThread = 1
	var usage syscall.Rusage
	err := syscall.Getrusage(rusageThread, &usage)
	must(err == nil, "getrusage failed")
	return usage.Utime.Nano() + usage.Stime.Nano()
}

func newControl(wanted bool) *control {
	if !wanted {
		return nil
	}
	c := &control{quit: make(chan bool), done: make(chan bool)}
	go c.run()
	return c
}

func (c *control) run() {
	runtime.LockOSThread()
	cpu := threadCPU()
	for step := now(); ; {
		select {
		case <-c.quit:
			c.cpu = threadCPU() - cpu
			close(c.done)
			return
		default:
		}
		step += ms
		sleep := syscall.NsecToTimespec(step - now())
		if step > now() {
			_ = syscall.Nanosleep(&sleep, nil)
		}
		lag := now() - step
		if lag > c.lagMax {
			c.lagMax = lag
		}
		if lag > ms {
			step += lag
		}
	}
}

// end gives the largest lag, and what the thread itself took.
func (c *control) end() (lagMax, cpu int64) {
	if c == nil {
		return 0, 0
	}
	close(c.quit)
	<-c.done
	return c.lagMax, c.cpu
}
