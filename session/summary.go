package session

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/parley-go/parley/internal/rawjson"
)

// storedSummary is a digest in the form in which a store stores it.
type storedSummary struct {
	Begun        bool   `json:"begun,omitempty"`
	Sidechain    bool   `json:"sidechain,omitempty"`
	Conversation bool   `json:"conversation,omitempty"`
	Created      string `json:"created,omitempty"`
	Cwd          string `json:"cwd,omitempty"`
	Entrypoint   string `json:"entrypoint,omitempty"`
	FirstPrompt  string `json:"firstPrompt,omitempty"`
	Command      string `json:"command,omitempty"` // shown if there is no prompt
	CustomTitle  string `json:"customTitle,omitempty"`
	AITitle      string `json:"aiTitle,omitempty"`
	LastPrompt   string `json:"lastPrompt,omitempty"`
	Summary      string `json:"summary,omitempty"`
	Branch       string `json:"gitBranch,omitempty"`
	Tag          string `json:"tag,omitempty"`
}

// Fold updates the summary of a session with records that were appended to it: see
// [Summarizer]. data is its previous result, nil for a new session, and is not changed.
// A store must not call it concurrently for the same session.
func Fold(data json.RawMessage, records []json.RawMessage) json.RawMessage {
	var k storedSummary
	json.Unmarshal(data, &k) // start again if it is malformed
	for _, r := range records {
		k.add(r)
	}
	out, _ := json.Marshal(&k) // cannot fail: texts and booleans only
	return out
}

func (k *storedSummary) add(record []byte) {
	var p peeked
	p.read(record)
	if p.typ == "" {
		return
	}
	if !k.Begun {
		k.Begun, k.Sidechain = true, p.sidechain
	}
	setOnce(&k.Created, p.timestamp)
	setOnce(&k.Cwd, p.cwd)
	setOnce(&k.Entrypoint, p.entrypoint)
	if p.branch != "" {
		k.Branch = p.branch
	}
	if p.typ == typeUser || p.typ == typeAssistant {
		k.Conversation = true
	}
	if k.FirstPrompt == "" && p.typ == typeUser && !p.meta && !p.compact {
		text, command := promptOf(p.message)
		k.FirstPrompt = text
		setOnce(&k.Command, command)
	}
	for name, dst := range map[string]*string{"customTitle": &k.CustomTitle, "aiTitle": &k.AITitle, "lastPrompt": &k.LastPrompt} {
		if bytes.Contains(record, []byte(`"`+name+`"`)) {
			if text, ok := topText(record, name); ok {
				*dst = text
			}
		}
	}
	if p.typ == "summary" {
		k.Summary, _ = topText(record, "summary")
	}
	if p.typ == "tag" {
		k.Tag, _ = topText(record, "tag")
	}
}

func (k *storedSummary) digest() *digest {
	d := &digest{
		sidechain: k.Sidechain, conversation: k.Conversation, customTitle: k.CustomTitle, aiTitle: k.AITitle, lastPrompt: k.LastPrompt,
		summary: k.Summary, firstPrompt: k.FirstPrompt, branch: k.Branch, cwd: k.Cwd, tag: k.Tag, entrypoint: k.Entrypoint,
	}
	d.created, _ = time.Parse(time.RFC3339, k.Created)
	setOnce(&d.firstPrompt, k.Command)
	return d
}

// A digester returns the digests of sessions, from the summaries of the store if it has
// them, or else from their records.
type digester struct {
	store     Store
	summaries map[Key]Summary
}

func newDigester(ctx context.Context, s Store) (*digester, error) {
	d := &digester{store: s}
	if z, ok := s.(Summarizer); ok {
		all, err := z.Summaries(ctx, "")
		if err != nil {
			return nil, err
		}
		d.summaries = map[Key]Summary{}
		for _, s := range all {
			d.summaries[s.Key] = s
		}
	}
	return d, nil
}

func (d *digester) digest(ctx context.Context, l Listed) (*digest, error) {
	var k storedSummary
	if s, ok := d.summaries[l.Key]; ok && !s.Modified.Before(l.Modified) && json.Unmarshal(s.Data, &k) == nil && k.Begun {
		return k.digest(), nil
	}
	r, err := openKey(ctx, d.store, l.Key)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	lines, err := io.ReadAll(r.all())
	if err != nil {
		return nil, err
	}
	return digestOf(lines, lines), nil
}

// topText returns a string member at the top level of a record.
func topText(record []byte, name string) (text string, ok bool) {
	v := rawjson.Get(record, name)
	if len(v) == 0 || v[0] != '"' {
		return "", false
	}
	return textOf(v), true
}
