// Command bare is the floor of the measurements of agents: a program that does the same work as one
// turn of an agent, and nothing else. It reads a prompt, asks the API, runs Read and Bash, and writes
// each message to a log, which it syncs. It has no rules, no settings and no session.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	if err := run(os.Stdin, os.Stdout, os.Getenv("ANTHROPIC_BASE_URL"), os.Getenv("HOME")); err != nil {
		fmt.Fprintln(os.Stderr, "bare:", err)
		os.Exit(1)
	}
}

// A block is a part of a message.
type block struct {
	Type  string          `json:"type"`
	Text  string          `json:"text,omitempty"`
	ID    string          `json:"id,omitempty"`
	Name  string          `json:"name,omitempty"`
	Input json.RawMessage `json:"input,omitempty"`
	Use   string          `json:"tool_use_id,omitempty"`
	Out   string          `json:"content,omitempty"`
}

type message struct {
	Role    string  `json:"role"`
	Content []block `json:"content"`
}

// A turn is the state of the only turn.
type turn struct {
	api     string
	log     *os.File
	out     io.Writer
	history [][]byte // the messages, encoded
}

// add records a message: in the log, in the history and for the host.
func (t *turn) add(m message) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	t.history = append(t.history, text)
	if err := t.record(text); err != nil {
		return err
	}
	_, err = fmt.Fprintf(t.out, `{"type":%q,"message":%s}`+"\n", m.Role, text)
	return err
}

func (t *turn) record(text []byte) error {
	if _, err := t.log.Write(append(text, '\n')); err != nil {
		return err
	}
	return t.log.Sync()
}

func run(in io.Reader, out io.Writer, api, home string) error {
	line, err := bufio.NewReader(in).ReadBytes('\n')
	if err != nil {
		return err
	}
	var prompt struct{ Message json.RawMessage }
	if err := json.Unmarshal(line, &prompt); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(home, "log.jsonl"))
	if err != nil {
		return err
	}
	defer log.Close()
	t := &turn{api: api, log: log, out: out, history: [][]byte{prompt.Message}}
	fmt.Fprintln(out, `{"type":"system","subtype":"init"}`)
	if err := t.record(prompt.Message); err != nil {
		return err
	}
	for {
		answer, err := t.ask()
		if err != nil {
			return err
		}
		if err := t.add(answer); err != nil {
			return err
		}
		results := message{Role: "user"}
		text := ""
		for _, b := range answer.Content {
			text += b.Text
			if b.Type == "tool_use" {
				result, err := t.call(b)
				if err != nil {
					return err
				}
				results.Content = append(results.Content, block{Type: "tool_result", Use: b.ID, Out: result})
			}
		}
		if results.Content == nil {
			_, err = fmt.Fprintf(out, `{"type":"result","result":%q}`+"\n", text)
			io.Copy(io.Discard, in) // until the host closes it
			return err
		}
		if err := t.add(results); err != nil {
			return err
		}
	}
}

// ask sends the history and reads the answer.
func (t *turn) ask() (message, error) {
	answer := message{Role: "assistant"}
	body := append([]byte(`{"model":"claude-sonnet-4-5","max_tokens":1000,"stream":true,"tools":[{"name":"Read","input_schema":{"type":"object"}},{"name":"Bash","input_schema":{"type":"object"}}],"messages":[`), bytes.Join(t.history, []byte(","))...)
	resp, err := http.Post(t.api+"/v1/messages", "application/json", bytes.NewReader(append(body, "]}"...)))
	if err != nil {
		return answer, err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		var e struct {
			Type  string
			Block *block `json:"content_block"`
			Delta struct {
				Text    string
				Partial string `json:"partial_json"`
			}
		}
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			return answer, err
		}
		if e.Block != nil {
			e.Block.Input = nil // comes in parts
			answer.Content = append(answer.Content, *e.Block)
		}
		if e.Type == "content_block_delta" {
			b := &answer.Content[len(answer.Content)-1]
			b.Text += e.Delta.Text
			b.Input = append(b.Input, e.Delta.Partial...)
		}
	}
	if resp.StatusCode != http.StatusOK || answer.Content == nil {
		return answer, fmt.Errorf("the API answered %s", resp.Status)
	}
	return answer, lines.Err()
}

// call runs a tool. It records a command before it runs it.
func (t *turn) call(b block) (string, error) {
	var in struct {
		File    string `json:"file_path"`
		Command string
	}
	if err := json.Unmarshal(b.Input, &in); err != nil {
		return "", err
	}
	if b.Name == "Read" {
		text, err := os.ReadFile(in.File)
		return string(text), err
	}
	if err := t.record(b.Input); err != nil {
		return "", err
	}
	text, err := exec.Command("bash", "-c", in.Command).CombinedOutput()
	return string(text), err
}
