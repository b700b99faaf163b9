package session

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// TestFixedValuesStayWhole checks that a record with long fixed values is the same whether
// a store keeps its text or its parts.
func TestFixedValuesStayWhole(t *testing.T) {
	long := json.RawMessage(`["` + strings.Repeat("text ", 100) + `"]`)
	entries := []*Entry{
		{Type: "parley-prefix", Fixed: true, Fields: map[string]json.RawMessage{"a": long, "b": json.RawMessage(`{"short":null}`), "c": long}},
		{Type: "user", UUID: NewID(), Message: json.RawMessage(`{"role":"user","content":"Hello"}`), Fixed: true, Fields: map[string]json.RawMessage{"z": long}},
	}
	var store Memory
	ctx := context.Background()
	log, err := Create(ctx, &store, Meta{Cwd: "/work"})
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Append(entries...); err != nil {
		t.Fatal(err)
	}
	got, err := store.Load(ctx, log.(*leaseLog).key)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		e.Fixed = false
		if e.Time.IsZero() && e.UUID != "" { // the time of the record
			var r struct{ Timestamp string }
			json.Unmarshal(got[1], &r)
			if e.Time, err = time.Parse(timeFormat, r.Timestamp); err != nil {
				t.Fatal(err)
			}
		}
	}
	_, encoder := log.(*leaseLog).encoding()
	want, err := encoder.records(entries)
	if err != nil {
		t.Fatal(err)
	}
	for i := range want {
		if string(got[i]) != string(want[i]) {
			t.Errorf("record %d:\ngot  %s\nwant %s", i, got[i], want[i])
		}
	}
	listed, err := store.List(ctx, Key{Session: log.ID()})
	if size := int64(len(want[0]) + len(want[1]) + 2); err != nil || len(listed) != 1 || listed[0].Size != size {
		t.Errorf("listed %v, %v; want one of %d bytes", listed, err, size)
	}
	// Appended again, the record with a uuid is left out.
	if err := store.Append(ctx, log.(*leaseLog).key, want); err != nil {
		t.Fatal(err)
	}
	if got, _ = store.Load(ctx, log.(*leaseLog).key); len(got) != 3 {
		t.Errorf("%d records, want 3", len(got))
	}
}
