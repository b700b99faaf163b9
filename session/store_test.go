package session_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/session/sessiontest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == writerArg {
		writer(os.Args[2:])
		return
	}
	goleak.VerifyTestMain(m)
}

func TestFiles(t *testing.T) {
	for name, d := range map[string]session.Durability{"fsync": session.Fsync, "write": session.Write} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sessiontest.Run(t, func(t *testing.T) session.Store {
				return &session.Files{Dir: t.TempDir(), Durability: d}
			})
		})
	}
}

func TestMemory(t *testing.T) {
	sessiontest.Run(t, func(*testing.T) session.Store { return &session.Memory{} })
}

// TestRecordUUID reads uuids that are written in different ways.
func TestRecordUUID(t *testing.T) {
	for record, want := range map[string]string{
		`{"type":"user","uuid":"a","parentUuid":"b"}`:      "a",
		`{"message":{"uuid":"b"},"uuid" : "a"}`:            "a",
		`{"uuid":"b","x":"<\u003e","uuid":"a"}`:            "a",
		`{"uu\u0069d":"a"}`:                                "a",
		`{"uuid":"\u0061"}`:                                "a",
		`{"uuid":null}`:                                    "",
		`{"message":{"uuid":"b"},"promptUuid":"c"}`:        "",
		`{"toolUseResult":"\"uuid\":\"b\"","type":"user"}`: "",
	} {
		if got := session.RecordUUID(json.RawMessage(record)); got != want {
			t.Errorf("%s: got %q, want %q", record, got, want)
		}
	}
}
