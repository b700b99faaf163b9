package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/parley-go/parley/engine/tool"
)

// A SessionFile is a file that we write below the directory of the session
// ([tool.Env]). Commands may be able to change that directory: no symbolic link in it
// is followed, an existing file is not overwritten, and only the file that was created
// is read back.
type SessionFile struct {
	env  *tool.Env
	name string

	mu   sync.Mutex
	info fs.FileInfo // of the file that was created
}

// InSession returns the file with a slash-separated name in the session, or nil if the
// session has no directory.
func InSession(env *tool.Env, name string) *SessionFile {
	if env == nil || env.Dir == "" {
		return nil
	}
	return &SessionFile{env: env, name: filepath.FromSlash(name)}
}

// Path returns the path of the file.
func (s *SessionFile) Path() string { return filepath.Join(s.env.Dir, s.name) }

func (s *SessionFile) place() (*Place, error) {
	dir := Pin(s.env, s.env.Dir)
	if dir == "" || !filepath.IsLocal(s.name) {
		return nil, errors.New("the session has no place for the file " + s.name)
	}
	return OpenReal(filepath.Join(dir, s.name))
}

// Create creates the file, and the directories above it, for writing and reading. Only
// this user has access to them.
func (s *SessionFile) Create() (*os.File, error) { return s.open(os.O_EXCL) }

// Append opens the file for writing at its end, and creates it if necessary.
func (s *SessionFile) Append() (*os.File, error) { return s.open(os.O_APPEND) }

func (s *SessionFile) open(flag int) (*os.File, error) {
	p, err := s.place()
	if err != nil {
		return nil, err
	}
	defer p.Close()
	if err := p.makeDirs(0o700); err != nil {
		return nil, explain(err, s.Path())
	}
	before, err := p.Stat()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if before == nil {
		flag |= os.O_EXCL // so that no link is followed
	}
	f, err := p.dir.OpenFile(p.base, os.O_RDWR|os.O_CREATE|nonblock|flag, 0o600)
	if err != nil {
		return nil, explain(err, s.Path())
	}
	info, err := f.Stat()
	if err == nil && before != nil && !os.SameFile(before, info) {
		err = ErrMoved
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.info = info
	return f, nil
}

// Open opens the file that was created, for reading.
func (s *SessionFile) Open() (*os.File, error) {
	s.mu.Lock()
	created := s.info
	s.mu.Unlock()
	p, err := s.place()
	if err != nil {
		return nil, err
	}
	defer p.Close()
	f, info, err := p.Read()
	if err != nil {
		return nil, err
	}
	if created == nil || !os.SameFile(created, info) {
		f.Close()
		return nil, ErrMoved
	}
	return f, nil
}
