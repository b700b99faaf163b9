package engine

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/parley-go/parley/engine/internal/picture"
	"github.com/parley-go/parley/engine/model"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

func hasPicture(content wire.Content) bool {
	return slices.ContainsFunc(content.Blocks, func(b wire.Block) bool { _, ok := b.(*wire.ImageBlock); return ok })
}

// tellLeftOut tells that something does not become part of the conversation.
func (c *Conversation) tellLeftOut(text string) {
	c.rec.Emit(picture.LeftOut(text))
}

// quarantineType is the type of the record that says which blocks the API refused,
// by their hash. It is cumulative: the last one counts.
const quarantineType = "parley-quarantine"

// blockAt finds the block that a failure of the API is about.
var blockAt = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`messages\.(\d+)\.content\.(\d+)`) })

// quarantine takes pictures and documents out of the conversation that the API
// refuses, so that it goes on without them. It reports whether there were any:
// then the request may be sent again.
func (c *Conversation) quarantine(e *model.Error) bool {
	if e.Status != http.StatusBadRequest && e.Status != http.StatusRequestEntityTooLarge {
		return false
	}
	lower := strings.ToLower(e.Message)
	took := 0
	if at := blockAt().FindStringSubmatch(e.Message); at != nil {
		i, _ := strconv.Atoi(at[1])
		k, _ := strconv.Atoi(at[2])
		if len(c.transcript.messages) > 0 && c.transcript.messages[0].role != "user" {
			i-- // one was put in front
		}
		if i >= 0 && i < len(c.transcript.messages) && k < len(c.transcript.messages[i].blocks) {
			took = c.takeOut(i, k, e.Message)
		}
	} else if e.Status == http.StatusRequestEntityTooLarge || strings.Contains(lower, "image") || strings.Contains(lower, "pdf") || strings.Contains(lower, "document") {
		// It is not told which one: the newest are the ones that did not pass yet.
		for i := len(c.transcript.messages) - 1; i >= 0 && took == 0; i-- {
			for k := range c.transcript.messages[i].blocks {
				took += c.takeOut(i, k, e.Message)
			}
		}
	}
	if took == 0 {
		return false
	}
	if err := c.rec.Record(&session.Entry{Type: quarantineType, Fields: fields("blocks", c.quarantined)}); err != nil {
		c.log.Error("what the API refused could not be recorded", "error", err)
	}
	c.tellLeftOut(fmt.Sprintf("The API refused a picture or document, which was taken out of the conversation: %s", clip(e.Message, 300)))
	return true
}

// takeOut takes the pictures and documents out of a block of the conversation. It
// returns how many there were.
func (c *Conversation) takeOut(i, k int, reason string) int {
	m := &c.transcript.messages[i]
	if m.role != "user" {
		return 0
	}
	raw := m.blocks[k]
	reason = "the API refused it: " + clip(reason, 200)
	without, n := withoutMedia(raw, reason)
	if n == 0 {
		return 0
	}
	if c.quarantined == nil {
		c.quarantined = map[string]string{}
	}
	c.quarantined[blockHash(raw)] = reason
	m.blocks[k] = without
	return n
}

func blockHash(raw json.RawMessage) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// withoutMedia returns a block with text in place of its pictures and documents, and
// how many there were.
func withoutMedia(raw json.RawMessage, reason string) (json.RawMessage, int) {
	if !bytes.Contains(raw, []byte(`"image"`)) && !bytes.Contains(raw, []byte(`"document"`)) {
		return raw, 0
	}
	note := mustJSON(picture.Placeholder(reason))
	switch blockType(raw) {
	case "image", "document":
		return note, 1
	case "tool_result":
		var members map[string]json.RawMessage
		var content []json.RawMessage
		if json.Unmarshal(raw, &members) != nil || json.Unmarshal(members["content"], &content) != nil {
			return raw, 0
		}
		n := 0
		for i, b := range content {
			if t := blockType(b); t == "image" || t == "document" {
				content[i] = note
				n++
			}
		}
		if n == 0 {
			return raw, 0
		}
		members["content"] = mustJSON(content)
		return mustJSON(members), n
	}
	return raw, 0
}
