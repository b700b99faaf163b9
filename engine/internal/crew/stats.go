package crew

import (
	"encoding/json"
	"maps"
	"sync"

	"github.com/parley-go/parley/engine/internal/recorder"
	"github.com/parley-go/parley/engine/tool"
)

// Stats counts subagents, for results.
type Stats struct {
	mu sync.Mutex
	n  counts
}

type counts struct {
	Spawned   int `json:"spawned"`
	Requested struct {
		Background int `json:"background"`
		Foreground int `json:"foreground"`
		Unset      int `json:"unset"`
	} `json:"requested"`
	InBackground int `json:"started_in_background"`
	MaxDepth     int `json:"max_depth"`
	Nested       int `json:"spawned_by_subagents"`
	Completed    int `json:"completed"`
	Failed       int `json:"failed"`
	Killed       struct {
		Parent int `json:"parent"`
		User   int `json:"user"`
		System int `json:"system"`
	} `json:"killed"`
	Refused struct {
		Depth       int `json:"depth_limit"`
		Concurrency int `json:"concurrency_limit"`
		Budget      int `json:"budget"`
	} `json:"refused"`
	ByType map[string]int `json:"by_type"`
}

func (s *Stats) recordStart(a *Subagent, asked string, background bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n.Spawned++
	switch asked {
	case "background":
		s.n.Requested.Background++
	case "foreground":
		s.n.Requested.Foreground++
	default:
		s.n.Requested.Unset++
	}
	if background {
		s.n.InBackground++
	}
	if a.Depth() > 1 {
		s.n.Nested++
	}
	s.n.MaxDepth = max(s.n.MaxDepth, a.Depth())
	if s.n.ByType == nil {
		s.n.ByType = map[string]int{}
	}
	s.n.ByType[a.Def.Name]++
}

func (s *Stats) recordEnd(status, killer string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch status {
	case tool.TaskCompleted:
		s.n.Completed++
	case tool.TaskFailed:
		s.n.Failed++
	default:
		switch killer {
		case "parent":
			s.n.Killed.Parent++
		case "system":
			s.n.Killed.System++
		default:
			s.n.Killed.User++
		}
	}
}

func (s *Stats) recordRefusal(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch why {
	case "depth_limit":
		s.n.Refused.Depth++
	case "concurrency_limit":
		s.n.Refused.Concurrency++
	case "budget":
		s.n.Refused.Budget++
	}
}

// JSON returns the counts as a member of results.
func (s *Stats) JSON() json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.n
	n.ByType = maps.Clone(n.ByType)
	if n.ByType == nil {
		n.ByType = map[string]int{}
	}
	return recorder.JSON(n)
}
