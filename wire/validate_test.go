package wire_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/parley-go/parley/wire"
	"golang.org/x/tools/txtar"
)

// A schema is the committed JSON Schema of the protocol.
type schema struct {
	root  *jsonschema.Schema
	valid *jsonschema.Resolved // of an object whose members have the names of definitions
}

var loadSchema = sync.OnceValues(func() (*schema, error) {
	text, err := os.ReadFile(wire.SchemaFile)
	if err != nil {
		return nil, err
	}
	root := new(jsonschema.Schema)
	if err := json.Unmarshal(text, root); err != nil {
		return nil, err
	}
	return resolve(root)
})

func protocolSchema(t testing.TB) *schema {
	t.Helper()
	s, err := loadSchema()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// resolve makes a schema that can validate values of each definition.
func resolve(root *jsonschema.Schema) (*schema, error) {
	all := &jsonschema.Schema{Defs: root.Defs, Properties: map[string]*jsonschema.Schema{}}
	for name := range root.Defs {
		all.Properties[name] = &jsonschema.Schema{Ref: "#/$defs/" + name}
	}
	valid, err := all.Resolve(nil)
	return &schema{root, valid}, err
}

// check validates text against one of the definitions.
func (s *schema) check(def string, text []byte) error {
	if s.root.Defs[def] == nil {
		return errors.New("no definition of " + def)
	}
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		return err
	}
	return s.valid.Validate(map[string]any{def: v})
}

// answer returns the definition of the response to a control request of a subtype, or "" if
// the response is empty.
func (s *schema) answer(subtype string) string {
	for _, branch := range s.root.Defs["Request"].AllOf {
		if c := branch.If.Properties["subtype"]; c != nil && *c.Const == subtype {
			request := s.root.Defs[strings.TrimPrefix(branch.Then.Ref, "#/$defs/")]
			ref, _ := request.Extra["x-answer"].(string)
			return strings.TrimPrefix(ref, "#/$defs/")
		}
	}
	return ""
}

// An exchange validates the lines of one connection, responses by their requests.
type exchange struct {
	schema  *schema
	asked   map[string]string // request id → subtype
	answers int
}

func newExchange(t testing.TB) *exchange {
	return &exchange{schema: protocolSchema(t), asked: map[string]string{}}
}

func (x *exchange) check(line []byte) error {
	if err := x.schema.check("Message", line); err != nil {
		return err
	}
	m, err := wire.Decode(line)
	if err != nil {
		return err
	}
	switch m := m.(type) {
	case *wire.ControlRequest:
		x.asked[m.RequestID] = m.Request.Subtype()
	case *wire.ControlResponse:
		def := x.schema.answer(x.asked[m.Response.RequestID])
		if def == "" || m.Response.Subtype != "success" || m.Response.Response == nil {
			return nil
		}
		x.answers++
		return x.schema.check(def, m.Response.Response)
	}
	return nil
}

// Sections of the corpus with lines that nobody should send: readers accept them, but the
// schema may reject them.
var oddSections = map[string]bool{"odd": true, "other": true, "numbers": true, "twice": true, "of-tomorrow": true}

// corpusLines calls f for each line of testdata.
func corpusLines(t *testing.T, f func(file, kind, variant string, line []byte)) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no corpus:", err)
	}
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, section := range a.Files {
			kind, variant, _ := strings.Cut(section.Name, "/")
			for line := range bytes.Lines(section.Data) {
				if line = bytes.TrimSpace(line); len(line) > 0 {
					f(filepath.Base(file), kind, variant, line)
				}
			}
		}
	}
}

// TestSchemaCorpus validates every line of testdata. It must reject those of wrong shapes.
// Lines of older descriptions may lack members.
func TestSchemaCorpus(t *testing.T) {
	s := protocolSchema(t)
	older := s.withoutRequired(t)
	lines, refused := 0, 0
	corpusLines(t, func(file, kind, variant string, line []byte) {
		check := s.check
		if strings.HasPrefix(file, "dialect-") {
			check = older.check
		}
		err := check("Message", line)
		switch {
		case kind == "Unknown" || oddSections[variant]:
		case variant == "wrong-shapes":
			refused++
			if err == nil {
				t.Errorf("%s: %s: the schema accepts %s", file, kind, line)
			}
		default:
			lines++
			if err != nil {
				t.Errorf("%s: %s/%s: %v\n%s", file, kind, variant, err, line)
			}
		}
	})
	if lines < 250 || refused < 10 {
		t.Errorf("only %d lines are valid and %d are rejected", lines, refused)
	}
}

// withoutRequired returns the schema without required members.
func (s *schema) withoutRequired(t testing.TB) *schema {
	root := s.root.CloneSchemas()
	for _, d := range root.Defs {
		d.Required = nil
	}
	s, err := resolve(root)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSchemaRejectsWrongTypes replaces each member of each line of testdata, at any depth,
// by a value of a wrong type.
func TestSchemaRejectsWrongTypes(t *testing.T) {
	s := protocolSchema(t)
	tried := map[string]bool{}
	corpusLines(t, func(file, kind, variant string, line []byte) {
		if kind == "Unknown" || file == "hostile.txtar" || oddSections[variant] || strings.HasPrefix(file, "dialect-") {
			return
		}
		s.mutate(t, "Message", line, tried)
	})
	if len(tried) < 500 {
		t.Errorf("only %d members were tried", len(tried))
	}
	t.Logf("%d members were tried", len(tried))
}

// mutate tries each member of an object once, by definition and name.
func (s *schema) mutate(t *testing.T, def string, text []byte, tried map[string]bool) {
	var object map[string]json.RawMessage
	if json.Unmarshal(text, &object) != nil {
		return // another form of the value
	}
	d := s.root.Defs[def]
	for _, branch := range d.AllOf { // a union
		matches := true
		for name, c := range branch.If.Properties {
			var value any
			json.Unmarshal(object[name], &value)
			matches = matches && c.Const != nil && *c.Const == value
		}
		if matches {
			s.mutate(t, strings.TrimPrefix(branch.Then.Ref, "#/$defs/"), text, tried)
		}
	}
	if len(d.AllOf) > 0 {
		return
	}
	for name, p := range d.Properties {
		value, ok := object[name]
		if !ok {
			continue
		}
		ref := p.Ref
		if len(p.AnyOf) > 0 {
			ref = p.AnyOf[0].Ref
		}
		if ref != "" {
			s.mutate(t, strings.TrimPrefix(ref, "#/$defs/"), value, tried)
		} else if p.Const == nil && p.Type == "" && p.Types == nil && p.AnyOf == nil {
			continue // any value is valid
		} else if p.Items != nil && reflect.DeepEqual(p.Items, &jsonschema.Schema{}) {
			continue // a list of anything
		}
		if tried[def+"."+name] {
			continue
		}
		tried[def+"."+name] = true
		object[name] = json.RawMessage("[[0]]")
		bad, _ := json.Marshal(object)
		if s.check(def, bad) == nil {
			t.Errorf("%s: the schema accepts a %s of %s", def, name, object[name])
		}
		object[name] = value
	}
}

// TestSchemaTranscripts validates the recorded conversations in the directory
// PARLEY_TRANSCRIPTS, if it is set; responses by their requests. A line that a recorded host
// malformed on purpose must have been rejected: a request failed, any other line ended the
// agent.
func TestSchemaTranscripts(t *testing.T) {
	dir := os.Getenv("PARLEY_TRANSCRIPTS")
	if dir == "" {
		t.Skip("PARLEY_TRANSCRIPTS is not set")
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil || len(files) == 0 {
		t.Fatal("no transcripts:", err)
	}
	lines, notes, answers, refused := 0, 0, 0, 0
	for _, file := range files {
		x := newExchange(t)
		wrong, taken := map[string]error{}, map[string]bool{}
		recorded, exit := transcript(t, file)
		for _, line := range recorded {
			lines++
			msg, ok := frame(line.msg)
			if !ok {
				notes++
				continue
			}
			if m, err := wire.Decode(msg); err == nil && line.dir == "out" {
				if r, ok := m.(*wire.ControlResponse); ok && r.Response.Subtype == "success" {
					taken[r.Response.RequestID] = true
				}
			}
			err := x.check(msg)
			switch {
			case err == nil:
			case line.dir == "in":
				var id struct {
					ID string `json:"request_id"`
				}
				json.Unmarshal(msg, &id)
				wrong[id.ID] = err
			default:
				t.Errorf("%s: %v\n%.2000s", filepath.Base(file), err, msg)
			}
		}
		for id, err := range wrong {
			if refused++; taken[id] || id == "" && exit != 1 {
				t.Errorf("%s: request %s was accepted: %v", filepath.Base(file), id, err)
			}
		}
		answers += x.answers
	}
	t.Logf("%d lines of %d transcripts, with %d answers; %d are no frames, %d were refused", lines, len(files), answers, notes, refused)
}

// frame returns the frame of a recorded line. A line that no JSON encoder wrote is recorded
// as its bytes, and one that was too long as a note.
func frame(msg []byte) (_ []byte, ok bool) {
	var other struct{ Raw, Note *string }
	var members map[string]json.RawMessage
	if json.Unmarshal(msg, &members) != nil {
		return nil, false
	}
	json.Unmarshal(members["_raw"], &other.Raw)
	json.Unmarshal(members["_note"], &other.Note)
	switch {
	case other.Note != nil:
		return nil, false
	case other.Raw != nil:
		text := strings.TrimSpace(*other.Raw)
		return []byte(text), strings.HasPrefix(text, "{") && json.Valid([]byte(text))
	}
	return msg, true
}

// A recordedLine is a line of a transcript, from the host ("in") or the agent ("out").
type recordedLine struct {
	dir string
	msg []byte
}

// transcript returns the lines of a recorded conversation, and how the agent exited.
func transcript(t testing.TB, file string) (lines []recordedLine, exit int) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	s.Buffer(nil, 64<<20)
	for s.Scan() {
		var rec struct {
			Dir string
			Msg json.RawMessage
		}
		if err := json.Unmarshal(s.Bytes(), &rec); err != nil {
			t.Fatal(file, err)
		}
		switch {
		case rec.Dir == "exit":
			json.Unmarshal(rec.Msg, &exit)
		case (rec.Dir == "in" || rec.Dir == "out") && rec.Msg[0] == '{':
			lines = append(lines, recordedLine{rec.Dir, rec.Msg})
		}
	}
	if s.Err() != nil {
		t.Fatal(file, s.Err())
	}
	return lines, exit
}
