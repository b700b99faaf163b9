package parley_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/transport"
	"github.com/parley-go/parley/wire"
)

// answering returns a dialer of agents that answer every prompt with one result, whose
// fields are given as JSON. The requested schema is stored in schema.
func answering(result string, schema *string) transport.Dialer {
	return transport.DialerFunc(func(context.Context, transport.Spec) (transport.Conn, error) {
		conn, peer := transport.Pipe()
		go func() {
			defer peer.Exit(0, "")
			lines := bufio.NewScanner(peer)
			for lines.Scan() {
				var m struct {
					Type      string `json:"type"`
					RequestID string `json:"request_id"`
					Request   struct {
						JSONSchema json.RawMessage `json:"jsonSchema"`
					} `json:"request"`
				}
				json.Unmarshal(lines.Bytes(), &m)
				switch m.Type {
				case "control_request":
					if schema != nil {
						*schema = string(m.Request.JSONSchema)
					}
					fmt.Fprintf(peer, `{"type":"control_response","response":{"subtype":"success","request_id":%q,"response":{}}}`+"\n", m.RequestID)
				case "user":
					fmt.Fprintf(peer, `{"type":"result","subtype":"success","is_error":false,"session_id":"s",%s}`+"\n", result)
				}
			}
		}()
		return conn, nil
	})
}

type bug struct {
	File string `json:"file" jsonschema:"the path"`
	Line int    `json:"line,omitempty"`
}

// checkRunAs runs RunAs on a result and compares the value.
func checkRunAs[T any](t *testing.T, name, result string, want T) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		got, res, err := parley.RunAs[T](t.Context(), "do it", &parley.Options{Dialer: answering(result, nil)})
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) || res == nil {
			t.Errorf("got %#v, want %#v", got, want)
		}
	})
}

func TestRunAs(t *testing.T) {
	checkRunAs(t, "struct", `"structured_output":{"file":"a.go","line":3}`, bug{"a.go", 3})
	checkRunAs(t, "pointer", `"structured_output":{"file":"a.go"}`, &bug{File: "a.go"})
	checkRunAs(t, "map", `"structured_output":{"a":1}`, map[string]int{"a": 1})
	checkRunAs(t, "slice", `"structured_output":{"value":[{"file":"a.go"}]}`, []bug{{File: "a.go"}})
	checkRunAs(t, "unwrapped slice", `"structured_output":["a","b"]`, []string{"a", "b"})
	checkRunAs(t, "number", `"structured_output":{"value":9007199254740993}`, int64(9007199254740993))
	checkRunAs(t, "string", `"structured_output":{"value":"x"}`, "x")
	checkRunAs(t, "bool", `"structured_output":{"value":true}`, true)
	checkRunAs(t, "any", `"structured_output":{"value":null}`, any(nil))
	checkRunAs(t, "time", `"structured_output":{"value":"2025-01-02T03:04:05Z"}`, time.Date(2025, 1, 2, 3, 4, 5, 0, time.UTC))
	checkRunAs(t, "text", `"result":"{\"file\":\"a.go\"}"`, bug{File: "a.go"})
	checkRunAs(t, "text in a fence", `"result":"`+"```json\\n{\\\"file\\\":\\\"a.go\\\"}\\n```"+`\n"`, bug{File: "a.go"})
	checkRunAs(t, "text of a list", `"result":"[\"a\"]"`, []string{"a"})
	checkRunAs(t, "null is none", `"structured_output":null,"result":"{\"file\":\"a.go\"}"`, bug{File: "a.go"})
}

func TestRunAsSchema(t *testing.T) {
	var schema string
	dialer := answering(`"structured_output":{"file":"a.go"}`, &schema)
	opts := &parley.Options{Dialer: dialer}
	if _, _, err := parley.RunAs[bug](t.Context(), "", opts); err != nil {
		t.Fatal(err)
	}
	const want = `{"type":"object","properties":{"file":{"type":"string","description":"the path"},"line":{"type":"integer"}},"required":["file"],"additionalProperties":false}`
	if schema != want {
		t.Errorf("got  %s\nwant %s", schema, want)
	}
	if opts.OutputSchema != nil {
		t.Error("the caller's options were changed")
	}
	opts.Dialer = answering(`"structured_output":{"value":[]}`, &schema)
	if _, _, err := parley.RunAs[[]string](t.Context(), "", opts); err != nil {
		t.Fatal(err)
	}
	const list = `{"type":"object","properties":{"value":{"type":"array","items":{"type":"string"}}},"required":["value"],"additionalProperties":false}`
	if schema != list {
		t.Errorf("got  %s\nwant %s", schema, list)
	}
}

func TestRunAsFails(t *testing.T) {
	tests := []struct{ name, result, got, want string }{
		{"missing member", `"structured_output":{"line":3}`, `{"line":3}`, `required: missing properties: ["file"]`},
		{"other type", `"structured_output":{"file":"a","line":"x"}`, `{"file":"a","line":"x"}`, `validating /properties/line: type: x has type "string", want "integer"`},
		{"text", `"result":"I could not"`, "I could not", "there is no structured output, and the text is not JSON"},
		{"nothing", `"num_turns":1`, "", "there is no structured output"},
		{"other JSON in the text", `"result":"{\"a\":1}"`, `{"a":1}`, "unexpected additional properties"},
		{"a number that does not fit", `"structured_output":{"file":"a","line":1e300}`, `{"file":"a","line":1e300}`, "cannot unmarshal number"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			v, res, err := parley.RunAs[bug](t.Context(), "", &parley.Options{Dialer: answering(test.result, nil)})
			var wrong *parley.OutputError
			if !errors.As(err, &wrong) {
				t.Fatalf("got error %v", err)
			}
			if wrong.Got != test.got || !strings.Contains(wrong.Error(), test.want) || !json.Valid(wrong.Schema) {
				t.Errorf("got %v (%s)", wrong, wrong.Got)
			}
			if res == nil || v != (bug{}) {
				t.Errorf("got %v and %v", v, res)
			}
		})
	}
	t.Run("schema given", func(t *testing.T) {
		_, _, err := parley.RunAs[bug](t.Context(), "", &parley.Options{OutputSchema: json.RawMessage(`{}`)})
		var option *parley.OptionError
		if !errors.As(err, &option) || option.Option != "OutputSchema" {
			t.Errorf("got %v", err)
		}
	})
	t.Run("type without schema", func(t *testing.T) {
		if _, _, err := parley.RunAs[chan int](t.Context(), "", nil); err == nil || !strings.Contains(err.Error(), "there is no schema for chan int") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("failed turn", func(t *testing.T) {
		_, res, err := parley.RunAs[bug](t.Context(), "", &parley.Options{Dialer: answering(`"subtype":"error_max_structured_output_retries","is_error":true,"errors":["five times"]`, nil)})
		var failed *parley.ResultError
		if !errors.As(err, &failed) || res == nil {
			t.Errorf("got %v, %v", res, err)
		}
	})
	long := (&parley.OutputError{Got: strings.Repeat("ä", 1000), Err: errors.New("x")}).Error()
	if len([]rune(long)) > 300 {
		t.Errorf("a long error: %s", long)
	}
}

// TestTurnAs checks that a client with a schema returns typed answers, turn by turn,
// and that one without returns an error.
func TestTurnAs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		schema, err := parley.SchemaOf[[]int]()
		if err != nil {
			t.Fatal(err)
		}
		opts := plays(t, strings.Replace(hello, `"initialize"`, `"initialize","jsonSchema":{"properties":{"value":{"type":"array"}}}`, 1)+`
			< {"type":"user"}
			> {"type":"result","subtype":"success","is_error":false,"structured_output":{"value":[1,2]}}
			< {"type":"user"}
			> {"type":"result","subtype":"success","is_error":false,"result":"no numbers"}
			< {"type":"user"}
			> {"type":"result","subtype":"error_max_turns","is_error":true}
			< eof
		`)
		opts.OutputSchema = schema
		c := connect(t, opts)
		if got, res, err := parley.TurnAs[[]int](t.Context(), c, "which?"); err != nil || len(got) != 2 || res == nil {
			t.Errorf("got %v, %v, %v", got, res, err)
		}
		var misfit *parley.OutputError
		if got, _, err := parley.TurnAs[[]int](t.Context(), c, "and?"); !errors.As(err, &misfit) || got != nil {
			t.Errorf("got %v, %v", got, err)
		}
		var failed *parley.ResultError
		if res, err := c.Run(t.Context(), "and?"); !errors.As(err, &failed) || res == nil || res.Outcome() != wire.OutcomeMaxTurns {
			t.Errorf("got %v, %v", res, err)
		}
	})
	bubble(t, func(t *testing.T) {
		c := connect(t, plays(t, hello+"< eof\n"))
		var bad *parley.OptionError
		if _, _, err := parley.TurnAs[int](t.Context(), c, "which?"); !errors.As(err, &bad) || bad.Option != "OutputSchema" {
			t.Errorf("without a schema: %v", err)
		}
	})
	if _, err := parley.SchemaOf[func()](); err == nil {
		t.Error("there is a schema of a function")
	}
}
