package wire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/parley-go/parley/wire"
)

var jsonBlock = regexp.MustCompile("(?ms)^```json(?: ([^\n]*))?\n(.*?)^```$")

// TestProtocolExamples executes every example in docs/protocol.md that is tagged json.
// The word after the tag describes the block:
//
//	(none)    frames with specified members only; a response has the type of its request
//	unknown   frames of kinds that are not specified
//	bad       lines that are not frames
//	older     frames of older descriptions, which may lack members or have others
//	NAME      values of the type of that name, such as the payload of a response
//
// All of them survive decoding and encoding, and match the schema.
func TestProtocolExamples(t *testing.T) {
	text, err := os.ReadFile(wire.ProtocolFile)
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
	s := protocolSchema(t)
	older := s.withoutRequired(t)
	frames := 0
	for _, m := range jsonBlock.FindAllSubmatchIndex(text, -1) {
		line := 1 + bytes.Count(text[:m[0]], []byte("\n"))
		tag, body := "", text[m[4]:m[5]]
		if m[2] >= 0 {
			tag = string(text[m[2]:m[3]])
		}
		t.Run(fmt.Sprintf("line-%d", line), func(t *testing.T) {
			if tag == "bad" {
				for l := range bytes.Lines(body) {
					var bad *wire.BadLine
					if _, err := wire.Decode(bytes.TrimRight(l, "\n")); !errors.As(err, &bad) {
						t.Errorf("%s is not a bad line: %v", l, err)
					}
				}
				return
			}
			x := newExchange(t)
			d := json.NewDecoder(bytes.NewReader(body))
			for d.More() {
				var value json.RawMessage
				if err := d.Decode(&value); err != nil {
					t.Fatal(err)
				}
				frames++
				var frame bytes.Buffer
				if err := json.Compact(&frame, value); err != nil {
					t.Fatal(err)
				}
				switch tag {
				case "":
					m := roundTrip(t, frame.Bytes())
					specified(t, reflect.ValueOf(m))
					if err := x.check(frame.Bytes()); err != nil {
						t.Error(err)
					}
				case "unknown":
					if m, ok := roundTrip(t, frame.Bytes()).(*wire.Unknown); !ok {
						t.Errorf("got a %T", m)
					}
				case "older":
					if m, ok := roundTrip(t, frame.Bytes()).(*wire.Unknown); ok {
						t.Errorf("unknown frame: %s", m.Raw)
					}
					if err := older.check("Message", frame.Bytes()); err != nil {
						t.Error(err)
					}
				default:
					typ := wire.TypeOfName(tag)
					if typ == nil {
						t.Fatalf("there is no type %s", tag)
					}
					v := reflect.New(typ)
					if err := json.Unmarshal(frame.Bytes(), v.Interface()); err != nil {
						t.Fatal(err)
					}
					sameJSON(t, v.Interface(), frame.String())
					specified(t, v)
					if err := s.check(tag, frame.Bytes()); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	if frames < 60 {
		t.Errorf("only %d examples", frames)
	}
}

// specified fails if a value has anything that is not specified.
func specified(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			specified(t, v.Elem())
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			for i := range v.Len() {
				specified(t, v.Index(i))
			}
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			specified(t, v.MapIndex(k))
		}
	case reflect.Struct:
		if strings.HasPrefix(v.Type().Name(), "Unknown") {
			t.Errorf("an %s: %v", v.Type().Name(), v.Interface())
		}
		if open, ok := v.Interface().(wire.Open); ok {
			for name, value := range open.Extra {
				t.Errorf("a member that is not specified: %s: %s", name, value)
			}
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				specified(t, v.Field(i))
			}
		}
	}
}

// TestProtocolLevels compares the tables, which state who sends a message and whether it was
// recorded, with the recorded conversations in the directory PARLEY_TRANSCRIPTS, if it is
// set.
func TestProtocolLevels(t *testing.T) {
	dir := os.Getenv("PARLEY_TRANSCRIPTS")
	if dir == "" {
		t.Skip("PARLEY_TRANSCRIPTS is not set")
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil || len(files) == 0 {
		t.Fatal("no transcripts:", err)
	}
	type seen struct{ in, out bool }
	messages, requests := map[string]seen{}, map[string]seen{}
	for _, file := range files {
		lines, _ := transcript(t, file)
		for _, line := range lines {
			msg, ok := frame(line.msg)
			if !ok {
				continue
			}
			m, err := wire.Decode(msg)
			if err != nil {
				continue
			}
			typ, subtype := wire.TypeOf(m)
			table, key := messages, typ
			if typ == "system" {
				key += "/" + subtype
			}
			add := func() {
				s := table[key]
				s.in, s.out = s.in || line.dir == "in", s.out || line.dir == "out"
				table[key] = s
			}
			add()
			if typ == "control_request" {
				table, key = requests, subtype
				add()
			}
		}
	}
	requestTypes, _, _ := wire.Tables()
	for key := range wire.Messages() {
		s := messages[key]
		if recorded := s.in || s.out; recorded == (wire.Unrecorded[key] || wire.Older[key]) && key != "keep_alive" {
			t.Errorf("%s: recorded %t", key, recorded)
		}
		if s.in && wire.Senders[key] == "" {
			t.Errorf("hosts send %s", key)
		}
		if s.out && wire.Senders[key] == "host" {
			t.Errorf("agents send %s", key)
		}
	}
	for key := range requestTypes {
		s := requests[key]
		if by := wire.RequestSenders[key]; s.out && by == "" {
			t.Errorf("agents request %s", key)
		}
		if recorded := s.in || s.out; !recorded && !wire.Unrecorded[key] && !wire.Older[key] {
			t.Errorf("%s was not recorded", key)
		}
	}
}
