package acp

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strings"
	"sync"

	"github.com/parley-go/parley/acp/internal/v1"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// userMessage returns a prompt in the form that the agent receives.
func userMessage(blocks []v1.ContentBlock) (*wire.User, error) {
	var list, behind []wire.Block
	for i, b := range blocks {
		switch {
		case b.Text != nil:
			s := b.Text.Text
			if i == 0 {
				s = promptCommand(s)
			}
			list = append(list, &wire.TextBlock{Text: s})
		case b.Image != nil:
			source, err := imageSource(b.Image)
			if err != nil {
				return nil, err
			}
			list = append(list, &wire.ImageBlock{Source: source})
		case b.ResourceLink != nil:
			list = append(list, &wire.TextBlock{Text: link(b.ResourceLink.Name, b.ResourceLink.URI)})
		case b.Resource != nil:
			r := b.Resource.Resource
			if _, err := base64.StdEncoding.DecodeString(r.Blob); err != nil {
				return nil, errorf(CodeInvalidParams, "session/prompt: the blob of %q is not base64", r.URI)
			}
			list = append(list, &wire.TextBlock{Text: link("", r.URI)})
			switch {
			case r.Blob == "":
				behind = append(behind, &wire.TextBlock{Text: fmt.Sprintf("\n<context ref=%q>\n%s\n</context>", r.URI, r.Text)})
			case r.MimeType == "application/pdf":
				behind = append(behind, &wire.DocumentBlock{Source: &wire.Source{Type: "base64", MediaType: r.MimeType, Data: r.Blob}})
			case strings.HasPrefix(r.MimeType, "image/"):
				behind = append(behind, &wire.ImageBlock{Source: &wire.Source{Type: "base64", MediaType: r.MimeType, Data: r.Blob}})
			default:
				behind = append(behind, &wire.TextBlock{Text: fmt.Sprintf("\n<context ref=%q>\nThe content is binary (%s) and cannot be shown.\n</context>", r.URI, firstOf(r.MimeType, "of unknown type"))})
			}
		default:
			return nil, errorf(CodeInvalidParams, "session/prompt: the agent takes text, images, resources and links; see promptCapabilities")
		}
	}
	if list = append(list, behind...); len(list) == 0 {
		return nil, errorf(CodeInvalidParams, "session/prompt: the prompt is empty")
	}
	m := wire.Prompt(wire.Blocks(list...))
	m.UUID = session.NewID()
	return m, nil
}

func imageSource(b *v1.ImageContent) (*wire.Source, error) {
	switch {
	case b.Data != "":
		if _, err := base64.StdEncoding.DecodeString(b.Data); err != nil {
			return nil, errorf(CodeInvalidParams, "session/prompt: the data of an image is not base64")
		}
		return &wire.Source{Type: "base64", MediaType: b.MimeType, Data: b.Data}, nil
	case strings.HasPrefix(b.URI, "http://"), strings.HasPrefix(b.URI, "https://"):
		return &wire.Source{Type: "url", URL: b.URI}, nil
	}
	return nil, errorf(CodeInvalidParams, "session/prompt: an image needs data, or a uri on the web")
}

// lines matches the fragment of a file's URI that names lines.
var lines = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^L(\d+)(?:[-:]L?(\d+))?$`) })

// link returns the text of a resource in a prompt: a mention of a file of this machine, or a link.
func link(name, uri string) string {
	u, err := url.Parse(uri)
	if err == nil && u.Scheme == "file" && (u.Host == "" || u.Host == "localhost") && u.Path != "" && !strings.ContainsAny(u.Path, "\"\n\r") {
		file := u.Path
		if m := lines().FindStringSubmatch(u.Fragment); m != nil {
			file += "#L" + m[1] + flag("-"+m[2], m[2] != "")
		}
		if strings.ContainsAny(file, " \t'()[]<>@`") {
			return `@"` + file + `"`
		}
		return "@" + file
	}
	if name == "" && err == nil {
		name = path.Base(u.Path)
	}
	if name == "" || name == "." || name == "/" {
		return uri
	}
	return fmt.Sprintf("[%s](%s)", name, uri)
}

// steer adds to the running turn.
func (s *server) steer(r *request, p *v1.PromptRequest) (any, error) {
	e, err := s.opened(p.SessionID)
	if err != nil {
		return nil, err
	}
	m, err := userMessage(p.Prompt)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	running := len(e.turns) > 0
	e.mu.Unlock()
	if !running {
		return map[string]string{"outcome": "promptRequired"}, nil
	}
	m.Priority = "now"
	if _, err := e.hub.Prompt(r.ctx, e.id, m); err != nil {
		return map[string]string{"outcome": "failed"}, nil
	}
	return map[string]string{"outcome": "injected"}, nil
}
