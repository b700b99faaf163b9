package session

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/parley-go/parley/internal/durable"
)

// packedSuffix is the suffix of a compressed session.
const packedSuffix = ".gz"

// A Packed reports what [Files.Pack] did.
type Packed struct {
	Sessions      int   // number of compressed sessions
	Before, After int64 // their size in bytes
}

// Pack compresses the sessions that were last written before a time, except those that
// are open. They stay in their place, as <id>.jsonl.gz, are listed as before, and are
// decompressed when they are used. Other programs that read the directory do not see
// them.
func (f *Files) Pack(ctx context.Context, before time.Time) (Packed, error) {
	var did Packed
	err := f.inRoot(ctx, func(root *os.Root) error {
		all, err := f.places(ctx, root, nil)
		if err != nil {
			return err
		}
		for _, p := range all {
			if err := ctx.Err(); err != nil {
				return err
			}
			if p.packed || p.old || !p.mtime.Before(before) {
				continue
			}
			size, err := f.pack(ctx, root, p)
			if errors.Is(err, ErrLocked) || errors.Is(err, ErrNotFound) {
				continue
			}
			if err != nil {
				return fmt.Errorf("session: compressing %s: %w", p.id, err)
			}
			did.Sessions++
			did.Before += p.size
			did.After += size
		}
		return nil
	})
	return did, err
}

func (f *Files) pack(ctx context.Context, root *os.Root, p place) (int64, error) {
	d, err := f.digestPlace(root, p)
	if err != nil {
		return 0, err
	}
	file, err := openLocked(root, p)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	temp := p.name() + packedSuffix + ".tmp"
	root.Remove(temp) // left by a process that died
	out, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return 0, err
	}
	z := gzip.NewWriter(out)
	z.ModTime = p.mtime
	z.Extra, _ = json.Marshal(packedHead{Size: p.size, Nanos: p.mtime.UnixNano(), Kept: storedDigest(d)})
	if len(z.Extra) > 60_000 {
		z.Extra = nil
	}
	_, err = io.Copy(z, &until{ctx, io.NewSectionReader(file, 0, p.size)})
	err = errors.Join(err, z.Close())
	if err == nil {
		err = durable.File(out) // the uncompressed file is removed
	}
	info, statErr := out.Stat()
	if err = errors.Join(err, statErr, out.Close()); err == nil {
		err = root.Chtimes(temp, p.mtime, p.mtime)
	}
	if now, statErr := file.Stat(); err == nil && (statErr != nil || now.Size() != p.size) {
		err = ErrLocked // a line was added meanwhile
	}
	if err == nil {
		err = root.Rename(temp, p.name()+packedSuffix)
	}
	if err != nil {
		root.Remove(temp)
		return 0, err
	}
	return info.Size(), root.Remove(p.name())
}

// until is a reader that fails when its context ends.
type until struct {
	ctx context.Context
	r   io.Reader
}

func (u *until) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(p)
}

// A packedHead is the header of a compressed session.
type packedHead struct {
	Size  int64          `json:"size"`
	Nanos int64          `json:"nanos"` // time of the last write
	Kept  *storedSummary `json:"kept"`
}

func storedDigest(d *digest) *storedSummary {
	k := &storedSummary{
		Begun: true, Sidechain: d.sidechain, Conversation: d.conversation, CustomTitle: d.customTitle, AITitle: d.aiTitle, LastPrompt: d.lastPrompt,
		Summary: d.summary, FirstPrompt: d.firstPrompt, Branch: d.branch, Cwd: d.cwd, Tag: d.tag, Entrypoint: d.entrypoint,
	}
	if !d.created.IsZero() {
		k.Created = d.created.Format(time.RFC3339Nano)
	}
	return k
}

// readPacked reads the head of a compressed session.
func readPacked(root *os.Root, p place) (*packedHead, error) {
	file, err := openRead(root, p.name()+packedSuffix)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	z, err := gzip.NewReader(file)
	if err != nil {
		return nil, err
	}
	h := &packedHead{}
	if json.Unmarshal(z.Extra, h) != nil || h.Kept == nil { // written by another program
		all, err := io.ReadAll(io.LimitReader(z, 32*window))
		if err != nil {
			return nil, err
		}
		h.Kept = storedDigest(digestOf(all, all))
		h.Nanos = p.mtime.UnixNano()
	}
	return h, nil
}

// unpack decompresses a session. It does nothing if there is none.
func (f *Files) unpack(root *os.Root, project, id string) error {
	p := place{project: project, id: id}
	name := p.name()
	if info, err := root.Lstat(name); err == nil && info.Size() > 0 {
		return nil
	}
	file, err := openRead(root, name+packedSuffix)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("session: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("session: %w", err)
	}
	p.mtime = info.ModTime()
	z, err := gzip.NewReader(f.progress(file, info.Size()))
	if err != nil {
		return fmt.Errorf("session: the compressed session %s cannot be read: %w", id, err)
	}
	if h, err := readPacked(root, p); err == nil {
		p.mtime = time.Unix(0, h.Nanos)
	}
	if err := f.place(root, name, func(w io.Writer) error {
		_, err := io.Copy(w, z)
		return err
	}, p.mtime); err != nil {
		return fmt.Errorf("session: the compressed session %s cannot be read: %w", id, err)
	}
	if err := root.Remove(name + packedSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("session: %w", err)
	}
	return nil
}

// place writes the file of a session that is stored in another form, atomically. If two
// processes do this concurrently, one wins, and may already have written to it.
func (f *Files) place(root *os.Root, name string, write func(io.Writer) error, mtime time.Time) error {
	temp := name + "." + NewID()[:8] + ".tmp"
	out, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return fmt.Errorf("session: %w", err)
	}
	defer root.Remove(temp)
	err = write(out)
	if err == nil {
		err = durable.File(out) // the other file may be removed
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("session: %w", err)
	}
	root.Chtimes(temp, mtime, mtime)
	// An empty file is only a lock.
	if info, err := root.Lstat(name); err == nil && info.Size() == 0 {
		root.Remove(name)
	}
	if err = root.Link(temp, name); err != nil && !errors.Is(err, fs.ErrExist) {
		if _, there := root.Lstat(name); there == nil {
			return nil
		}
		err = root.Rename(temp, name) // not every system has links
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("session: %w", err)
	}
	return nil
}

// packedID returns the id in the name of a session's file, and whether it is
// compressed.
func packedID(name string) (id string, packed, ok bool) {
	name, packed = strings.CutSuffix(name, packedSuffix)
	id, ok = strings.CutSuffix(name, suffix)
	return id, packed, ok && ValidID(id)
}
