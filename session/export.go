package session

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// exportType is the type of the first line of an exported session.
const exportType = "parley-session"

// exportMax is the maximum length of a line of an exported session, in bytes.
const exportMax = 256 << 20

// An exportLine is a line of an exported session. The first is the header, then come
// the records, and the last has their number.
type exportLine struct {
	Type    string          `json:"type,omitempty"`
	Version int             `json:"version,omitempty"`
	Project string          `json:"project,omitempty"`
	Session string          `json:"session,omitempty"`
	Sub     string          `json:"sub,omitempty"` // the part that a record belongs to
	Record  json.RawMessage `json:"record,omitempty"`
	End     *int            `json:"end,omitempty"`
}

// Export writes a session to one file that [Import] can read on any machine: its log,
// with the receipts and permission updates in it, the logs of its subagents, and file
// contents from before it changed them. It is JSON, one record per line, compressed
// with gzip.
func Export(ctx context.Context, s Store, id string, w io.Writer, in *In) error {
	key, err := locate(ctx, s, id, in)
	if err != nil {
		return err
	}
	subs, err := s.Subkeys(ctx, key)
	if err != nil {
		return err
	}
	slices.Sort(subs)
	z := gzip.NewWriter(w)
	buf := bufio.NewWriter(z)
	out := json.NewEncoder(buf)
	out.SetEscapeHTML(false)
	n := 0
	err = out.Encode(exportLine{Type: exportType, Version: 1, Project: key.Project, Session: id})
	for _, sub := range append([]string{""}, subs...) {
		if err != nil {
			break
		}
		part := key
		part.Sub = sub
		var records []json.RawMessage
		records, err = s.Load(ctx, part)
		if sub != "" && errors.Is(err, ErrNotFound) { // removed meanwhile
			err = nil
		}
		for _, r := range records {
			if err == nil {
				err = out.Encode(exportLine{Sub: sub, Record: r})
				n++
			}
		}
	}
	if err == nil {
		err = out.Encode(exportLine{End: &n})
	}
	if err != nil {
		return err
	}
	return errors.Join(buf.Flush(), z.Close())
}

// ImportOptions select where a session is stored. The zero value, and nil, mean its
// original project.
type ImportOptions struct {
	Cwd string // the directory whose project it is added to
}

// Import stores a session that [Export] wrote, completely or not at all, and returns
// its id. The error is [ErrExists] if there is a session with that id.
func Import(ctx context.Context, s Store, r io.ReadSeeker, opts *ImportOptions) (string, error) {
	// Nothing is written before everything was read.
	key, err := readExport(ctx, r, nil)
	if err != nil {
		return "", err
	}
	if opts != nil && opts.Cwd != "" {
		key.Project = ProjectKey(opts.Cwd)
	}
	if err := key.Check(); err != nil {
		return "", fmt.Errorf("session: the file cannot be imported: %w", err)
	}
	if _, err := r.Seek(0, io.SeekStart); err != nil {
		return "", fmt.Errorf("session: %w", err)
	}
	lease, err := s.Lease(ctx, key)
	if errors.Is(err, ErrLocked) {
		err = ErrExists
	}
	if err != nil {
		return "", err
	}
	there, err := s.List(ctx, Key{Session: key.Session})
	if err == nil && len(there) > 0 {
		err = ErrExists
	}
	if err != nil {
		return "", errors.Join(err, lease.Close())
	}
	var batch []json.RawMessage
	at, size := "", 0
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		key := key
		key.Sub = at
		err := lease.Append(ctx, at, batch)
		batch, size = nil, 0
		return err
	}
	_, err = readExport(ctx, r, func(sub string, record json.RawMessage) error {
		if sub != at || size > 1<<20 || len(batch) >= 500 {
			if err := flush(); err != nil {
				return err
			}
		}
		at = sub
		size += len(record)
		batch = append(batch, record)
		return nil
	})
	if err == nil {
		err = flush()
	}
	if err != nil {
		err = errors.Join(err, s.Delete(context.WithoutCancel(ctx), key))
	}
	return key.Session, errors.Join(err, lease.Close())
}

// readExport reads an exported session to its end and calls take, if not nil, for each
// record.
func readExport(ctx context.Context, r io.Reader, take func(sub string, record json.RawMessage) error) (Key, error) {
	bad := func(err error) (Key, error) {
		return Key{}, fmt.Errorf("session: this is not a complete exported session: %w", err)
	}
	z, err := gzip.NewReader(r)
	if err != nil {
		return bad(err)
	}
	in := bufio.NewReaderSize(z, 64<<10)
	var key Key
	n := 0
	for first := true; ; first = false {
		if err := ctx.Err(); err != nil {
			return Key{}, err
		}
		text, err := readLine(in)
		if err != nil {
			return bad(err)
		}
		var line exportLine
		if err := json.Unmarshal(text, &line); err != nil {
			return bad(err)
		}
		switch {
		case first:
			if line.Type != exportType {
				return bad(errors.New("its first line is another"))
			}
			if line.Version != 1 {
				return Key{}, fmt.Errorf("session: the file has version %d; this program supports version 1. Use a newer program", line.Version)
			}
			key = Key{Project: line.Project, Session: line.Session}
		case line.End != nil:
			if *line.End != n {
				return bad(fmt.Errorf("it has %d records instead of %d", n, *line.End))
			}
			if n == 0 {
				return bad(errors.New("it holds nothing"))
			}
			if _, err := in.ReadByte(); err != io.EOF {
				return bad(errors.New("something follows its end"))
			}
			return key, nil
		default:
			if err := checkSub(line.Sub); err != nil {
				return bad(err)
			}
			if _, err := appendLine(nil, line.Record); err != nil {
				return bad(fmt.Errorf("record %d: %w", n+1, err))
			}
			n++
			if take != nil {
				if err := take(line.Sub, line.Record); err != nil {
					return Key{}, err
				}
			}
		}
	}
}

// readLine reads a line of limited length.
func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > exportMax {
			return nil, errors.New("a line is too long")
		}
		switch {
		case err == nil:
			return bytes.TrimSpace(line), nil
		case errors.Is(err, io.EOF):
			return nil, io.ErrUnexpectedEOF
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}
