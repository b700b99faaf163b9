package serve

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/parley-go/parley/hub"
)

// A Notice reports that a session needs attention.
type Notice struct {
	Session string    `json:"session"`
	Title   string    `json:"title,omitempty"`
	Event   string    `json:"event"` // "ask", "done" or "problem"
	Text    string    `json:"text"`  // one line; unusual characters are escaped
	Ask     *hub.Ask  `json:"ask,omitempty"`
	Link    string    `json:"link,omitempty"` // of the console, without a token
	Time    time.Time `json:"time"`
}

// notify calls [Config.Notify] and sends push messages whenever a session needs attention,
// until the server ends. It ignores events from before the server started.
func (s *Server) notify() {
	by := hub.Actor{Name: "notifications", Rights: hub.MayView}
	known := map[string]hub.State{}
	asked := map[string]bool{}
	began := time.Now()
	for i, err := range s.cfg.Hub.Watch(s.ctx, by) {
		if err != nil {
			return
		}
		before, seen := known[i.ID]
		known[i.ID] = i.State
		if i.Removed {
			delete(known, i.ID)
			continue
		}
		for _, w := range i.State.Waiting {
			if w.Kind != "ask" || asked[w.ID] {
				continue
			}
			if asked[w.ID] = true; !seen && i.State.Since.Before(began) {
				continue
			}
			n := Notice{Event: "ask", Text: w.About}
			if _, asks, err := s.cfg.Hub.Session(i.ID).Info(s.ctx, by); err == nil {
				for _, a := range asks {
					if a.ID == w.ID {
						n.Ask, n.Text = &a, aboutAsk(&a)
					}
				}
			}
			s.send(i, n)
		}
		switch {
		case i.State.Problem != "" && before.Problem != i.State.Problem && seen:
			s.send(i, Notice{Event: "problem", Text: clip(visible(i.State.Problem), 300)})
		case seen && before.Phase != hub.Idle && i.State.Phase == hub.Idle:
			s.send(i, Notice{Event: "done", Text: "The turn is over."})
		}
	}
}

// send sends a notice.
func (s *Server) send(i hub.Info, n Notice) {
	s.mu.Lock()
	base := s.publicURL
	s.mu.Unlock()
	n.Session, n.Title, n.Time = i.ID, i.State.Title, time.Now()
	if base != "" {
		n.Link = base + "/#/s/" + i.ID
	}
	s.push(i.CreatedBy(), n)
	if s.cfg.Notify == nil {
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, 30*time.Second)
	defer cancel()
	if err := s.cfg.Notify(ctx, n); err != nil {
		s.logger().Warn("a notification could not be sent", "error", err)
	}
}

// Webhook returns a function for [Config.Notify] that posts to an address in the format
// of ntfy: the last part of the path is the topic.
func Webhook(address string) (func(context.Context, Notice) error, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("serve: %q is not the address of a webhook, such as https://ntfy.sh/topic", address)
	}
	return func(ctx context.Context, n Notice) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewBufferString(n.Text))
		if err != nil {
			return err
		}
		title := n.Title
		if title == "" {
			title = "Session " + n.Session[:min(8, len(n.Session))]
		}
		req.Header.Set("X-Title", visible(title))
		req.Header.Set("X-Tags", n.Event)
		if n.Event == "ask" {
			req.Header.Set("X-Priority", "high")
		}
		if n.Link != "" {
			req.Header.Set("X-Click", n.Link)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode >= 300 {
			return fmt.Errorf("serve: the webhook answered %s", resp.Status)
		}
		return nil
	}, nil
}
