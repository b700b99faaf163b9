package session_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/session/sessiontest"
)

// BenchmarkAppend appends one message of 1 KB; 16 concurrent writers share the waits
// for the disk.
func BenchmarkAppend(b *testing.B) {
	for _, d := range []struct {
		name string
		d    session.Durability
	}{{"fsync", session.Fsync}, {"write", session.Write}, {"none", session.None}} {
		for _, writers := range []int{1, 16} {
			b.Run(fmt.Sprintf("%s/writers=%d", d.name, writers), func(b *testing.B) {
				store := &session.Files{Dir: b.TempDir(), Durability: d.d}
				log, err := session.Create(b.Context(), store, sessiontest.Meta("", "/src/a"))
				if err != nil {
					b.Fatal(err)
				}
				defer log.Close()
				e := sessiontest.Say("user", strings.Repeat("x", 1000), "")
				b.SetParallelism(writers)
				b.ResetTimer()
				if writers == 1 {
					for b.Loop() {
						if err := log.Append(e); err != nil {
							b.Fatal(err)
						}
					}
					return
				}
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if err := log.Append(e); err != nil {
							b.Error(err)
						}
					}
				})
			})
		}
	}
}

// BenchmarkOpen opens a session of 10,000 messages of 1 KB.
func BenchmarkOpen(b *testing.B) {
	store := &session.Files{Dir: b.TempDir(), Durability: session.Write}
	log, err := session.Create(b.Context(), store, sessiontest.Meta("", "/src/a"))
	if err != nil {
		b.Fatal(err)
	}
	parent := ""
	for range 10_000 {
		e := sessiontest.Say("user", strings.Repeat("x", 1000), parent)
		parent = e.UUID
		if err := log.Append(e); err != nil {
			b.Fatal(err)
		}
	}
	log.Close()
	info, err := os.Stat(log.Path())
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(info.Size())
	b.ReportAllocs()
	for b.Loop() {
		log, h, err := session.Open(b.Context(), store, log.ID(), sessiontest.Meta("", "/src/a"))
		if err != nil || len(h.Entries) != 10_000 {
			b.Fatal(err, len(h.Entries))
		}
		log.Close()
	}
}

// BenchmarkOpenLong opens a session with records of 10 KB that has no index yet.
func BenchmarkOpenLong(b *testing.B) {
	for _, records := range []int{6_400, 100_000} {
		b.Run(fmt.Sprintf("records=%d", records), func(b *testing.B) {
			store := &session.Files{Dir: b.TempDir(), Durability: session.Write}
			id := session.NewID()
			dir := filepath.Join(store.Dir, "projects", "-x")
			if err := os.MkdirAll(dir, 0o700); err != nil {
				b.Fatal(err)
			}
			file, err := os.Create(filepath.Join(dir, id+".jsonl"))
			if err != nil {
				b.Fatal(err)
			}
			w, fill, parent := bufio.NewWriterSize(file, 1<<20), strings.Repeat("The quick brown fox. ", 460), "null"
			for i := range records {
				if i == records-100 {
					parent = "null"
					uuid := session.NewID()
					fmt.Fprintf(w, `{"parentUuid":null,"type":"system","subtype":"compact_boundary","content":"Conversation compacted","uuid":%q}`+"\n", uuid)
					parent = `"` + uuid + `"`
				}
				role, uuid := []string{"user", "assistant"}[i%2], session.NewID()
				fmt.Fprintf(w, `{"parentUuid":%s,"isSidechain":false,"type":%q,"message":{"role":%q,"content":[{"type":"text","text":%q}]},"uuid":%q,"timestamp":"2026-01-02T03:04:05.678Z","cwd":"/x","sessionId":%q}`+"\n", parent, role, role, fill, uuid, id)
				parent = `"` + uuid + `"`
			}
			if err := w.Flush(); err != nil {
				b.Fatal(err)
			}
			size, _ := file.Seek(0, 1)
			file.Close()
			b.SetBytes(size)
			b.ReportAllocs()
			for b.Loop() {
				os.RemoveAll(filepath.Join(dir, id)) // the index
				log, h, err := session.Open(b.Context(), store, id, sessiontest.Meta("", "/x"))
				if err != nil || len(h.Entries) != 101 {
					b.Fatal(err, len(h.Entries))
				}
				log.Close()
			}
		})
	}
}

// BenchmarkList lists 3,000 sessions, small ones and ones that are longer than the part
// that is read: with the cache, and the first time, without one.
func BenchmarkList(b *testing.B) {
	for _, size := range []int{4 << 10, 100 << 10, 256 << 10} {
		store := &session.Files{Dir: b.TempDir(), Durability: session.Write}
		dir := filepath.Join(store.Dir, "projects", "-x")
		os.MkdirAll(dir, 0o700)
		fill, _ := json.Marshal(strings.Repeat("x", 2000))
		var text []byte
		for i := 0; len(text) < size; i++ {
			text = fmt.Appendf(text, `{"parentUuid":null,"type":"user","message":{"role":"user","content":%s},"uuid":%q,"timestamp":"2026-01-02T03:04:05.678Z","cwd":"/x","gitBranch":"main"}`+"\n", fill, session.NewID())
		}
		for range 3000 {
			os.WriteFile(filepath.Join(dir, session.NewID()+".jsonl"), text, 0o600)
		}
		for _, first := range []bool{false, true} {
			b.Run(fmt.Sprintf("bytes=%d/first=%v", size, first), func(b *testing.B) {
				for b.Loop() {
					if first {
						os.Remove(filepath.Join(store.Dir, "parley-sessions.gob"))
					}
					if infos, err := session.List(b.Context(), store, nil); err != nil || len(infos) != 3000 {
						b.Fatal(err, len(infos))
					}
				}
			})
		}
	}
}
