package agent_test

import (
	"bytes"
	"encoding/base64"
	"image"
	"image/png"
	"strings"
	"testing"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

func testPNG(w, h int) []byte {
	var b bytes.Buffer
	png.Encode(&b, image.NewGray(image.Rect(0, 0, w, h)))
	return b.Bytes()
}

func imagePrompt(text, mediaType string, data []byte) *wire.User {
	return wire.Prompt(wire.Blocks(&wire.TextBlock{Text: text}, &wire.ImageBlock{Source: wire.Base64(mediaType, data)}))
}

// turnOf sends a prompt and returns the messages and the result.
func turnOf(t *testing.T, c *parley.Client, m *wire.User) (all []wire.Message, last *wire.Result) {
	t.Helper()
	for m, err := range c.TurnMessage(t.Context(), m) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
		if r, ok := m.(*wire.Result); ok {
			last = r
		}
	}
	return all, last
}

func quarantined(all []wire.Message) (n int) {
	for _, m := range all {
		if i, ok := m.(*wire.Informational); ok && i.Tag == "content_quarantined" {
			n++
		}
	}
	return n
}

// A picture that no model accepts is left out before it is sent; one that is too big is
// made smaller; one with the wrong media type gets the right one.
func TestImagesOnTheWayIn(t *testing.T) {
	opts, _, _ := inProcess(t, parleytest.Script(
		parleytest.Expect(parleytest.LastUser("left out: it is not a PNG")).Say("one"),
		parleytest.Expect(parleytest.LastUser("two")).Say("two"),
		parleytest.Say("three"),
	))
	c, err := parley.Connect(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	all, r := turnOf(t, c, imagePrompt("one", "image/png", []byte{0, 0, 0}))
	if quarantined(all) != 1 || r.Result != "one" {
		t.Errorf("%s", kinds(all))
	}
	all, r = turnOf(t, c, imagePrompt("two", "image/jpeg", testPNG(3, 3)))
	if quarantined(all) != 0 || r.IsError {
		t.Errorf("%s", kinds(all))
	}
	if _, r = turnOf(t, c, imagePrompt("three", "image/png", testPNG(9000, 10))); r.IsError {
		t.Errorf("%+v", r)
	}
}

// A picture that the API rejects is removed and reported once, and the conversation
// continues, also when it is resumed.
func TestImageRefused(t *testing.T) {
	store := &session.Memory{}
	scenario := parleytest.Script(
		parleytest.Fail(400, "messages.0.content.1.image.source.base64: Could not process image"),
		parleytest.Expect(parleytest.LastUser("left out: the API refused it")).Say("went on"),
		parleytest.Say("again"),
	)
	m := scenario.Model()
	m.Strict, m.Record = true, true
	opts := &parley.Options{Cwd: t.TempDir(), Dialer: agent.InProcess(agent.Config{Model: m, Store: store})}
	c, err := parley.Connect(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	all, r := turnOf(t, c, imagePrompt("look", "image/png", testPNG(3, 3)))
	if quarantined(all) != 1 || r.IsError || r.Result != "went on" {
		t.Errorf("%s: %+v", kinds(all), r)
	}
	c.Close()

	again := *opts
	again.Resume = r.SessionID
	if _, r, err := collect(t, &again, "more"); err != nil || r.IsError {
		t.Fatal(r, err)
	}
	reqs := m.Requests()
	last := string(reqs[len(reqs)-1].Body)
	if strings.Contains(last, base64.StdEncoding.EncodeToString(testPNG(3, 3))) || !strings.Contains(last, "the API refused it") {
		t.Errorf("the resumed session sends %s", last)
	}
}
