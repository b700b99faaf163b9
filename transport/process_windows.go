package transport

import (
	"errors"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// A processTree is a command and its descendants. On Windows it is a job object, which
// kills its processes when its last handle is closed: that is when this process ends,
// however it ends.
type processTree struct {
	cmd *exec.Cmd

	mu  sync.Mutex
	job windows.Handle // 0 if there is none, and after release
}

func startTree(cmd *exec.Cmd, id string) (*processTree, error) {
	t := &processTree{cmd: cmd}
	job, err := newJob()
	if err != nil {
		return nil, err
	}
	// Start it suspended, so that it starts nothing before it is in the job. Its own
	// group lets us send it a control event and shields it from those of our console.
	cmd.SysProcAttr = &syscall.SysProcAttr{
		CreationFlags: windows.CREATE_SUSPENDED | windows.CREATE_NEW_PROCESS_GROUP,
		HideWindow:    true,
	}
	if err := cmd.Start(); err != nil {
		windows.CloseHandle(job)
		return nil, err
	}
	t.job = job
	var assignErr error
	err = cmd.Process.WithHandle(func(h uintptr) {
		assignErr = os.NewSyscallError("AssignProcessToJobObject", windows.AssignProcessToJobObject(job, windows.Handle(h)))
	})
	if err = errors.Join(err, assignErr); err == nil {
		err = resume(uint32(cmd.Process.Pid))
	}
	if err != nil {
		cmd.Process.Kill()
		cmd.Wait()
		windows.CloseHandle(job)
		return nil, err
	}
	return t, nil
}

// newJob creates a job object that does not outlive its handle.
func newJob() (windows.Handle, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return 0, os.NewSyscallError("CreateJobObject", err)
	}
	var info windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION
	info.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	_, err = windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info)))
	if err != nil {
		windows.CloseHandle(job)
		return 0, os.NewSyscallError("SetInformationJobObject", err)
	}
	return job, nil
}

// resume resumes the threads of a process. A process that was started suspended has one
// thread, but package os closed its handle.
func resume(pid uint32) error {
	snapshot, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPTHREAD, 0)
	if err != nil {
		return os.NewSyscallError("CreateToolhelp32Snapshot", err)
	}
	defer windows.CloseHandle(snapshot)
	resumed := false
	entry := windows.ThreadEntry32{Size: uint32(unsafe.Sizeof(windows.ThreadEntry32{}))}
	for err = windows.Thread32First(snapshot, &entry); err == nil; err = windows.Thread32Next(snapshot, &entry) {
		if entry.OwnerProcessID != pid {
			continue
		}
		thread, err := windows.OpenThread(windows.THREAD_SUSPEND_RESUME, false, entry.ThreadID)
		if err != nil {
			return os.NewSyscallError("OpenThread", err)
		}
		_, err = windows.ResumeThread(thread)
		windows.CloseHandle(thread)
		if err != nil {
			return os.NewSyscallError("ResumeThread", err)
		}
		resumed = true
	}
	if !resumed {
		return errors.New("its first thread was not found")
	}
	return nil
}

func (t *processTree) pid() int { return t.cmd.Process.Pid }

// watch does nothing: the job object is the watchdog.
func (t *processTree) watch() {}

// terminate sends a control event, the closest equivalent of SIGTERM on Windows. It
// reaches a command that shares our console.
func (t *processTree) terminate() {
	windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(t.pid()))
}

func (t *processTree) kill() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.job != 0 {
		windows.TerminateJobObject(t.job, 1)
	}
}

func (t *processTree) awaitExit() { t.cmd.Wait() }

func (t *processTree) release() *os.ProcessState {
	t.mu.Lock()
	defer t.mu.Unlock()
	windows.CloseHandle(t.job)
	t.job = 0
	return t.cmd.ProcessState
}

func exitStatus(state *os.ProcessState) (code int, signal string) {
	if state == nil {
		return -1, ""
	}
	return state.ExitCode(), ""
}

func isBrokenPipe(err error) bool {
	return errors.Is(err, windows.ERROR_BROKEN_PIPE) || errors.Is(err, windows.ERROR_NO_DATA)
}

// systemAdvice returns a remedy for an error of the system.
func systemAdvice(err error) string {
	if errors.Is(err, windows.ERROR_BAD_EXE_FORMAT) {
		return "it is not a program for this machine"
	}
	return ""
}
