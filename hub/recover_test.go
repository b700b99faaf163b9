package hub

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
)

// TestRecoveredResults checks that the result of a turn is recovered if the process was killed
// before its frame was in the journal, even if the agent had begun the turn of the next prompt.
// The result of a turn that ended before a frame in the journal is not added behind that frame.
func TestRecoveredResults(t *testing.T) {
	message := func(typ, uuid string) json.RawMessage {
		return json.RawMessage(fmt.Sprintf(`{"type":%q,"uuid":%q,"promptId":"x","sessionId":"s","message":{"role":%q,"content":"x"}}`, typ, uuid, typ))
	}
	resultOf := func(n int) string {
		return fmt.Sprintf(`{"type":"result","subtype":"success","uuid":"result-%d","user_message_uuids":["prompt-%d"]}`, n, n)
	}
	var records []json.RawMessage
	for n := 1; n <= 3; n++ {
		records = append(records, message("user", fmt.Sprint("prompt-", n)), json.RawMessage(`{"type":"parley-turn","state":"running"}`),
			message("assistant", fmt.Sprint("answer-", n)), json.RawMessage(fmt.Sprintf(`{"type":"parley-turn","state":"ended","result":%s}`, resultOf(n))))
	}
	for _, c := range []struct {
		name    string
		records int // that were written before the kill
		frames  []string
		want    []string // what is recovered
		running []string
	}{
		{"before the result", 4, []string{"prompt-1", "answer-1"}, []string{"result-1"}, nil},
		{"in the next turn", 7, []string{"prompt-1", "answer-1"}, []string{"result-1", "prompt-2", "answer-2"}, []string{"prompt-2"}},
		{"two turns later", 10, []string{"prompt-1"}, []string{"answer-1", "result-1", "prompt-2", "answer-2", "result-2", "prompt-3"}, []string{"prompt-3"}},
		{"nothing is missing", 8, []string{"prompt-1", "answer-1", "result-1", "prompt-2", "answer-2", "result-2"}, nil, nil},
		{"a later frame is there", 7, []string{"prompt-1", "answer-1", "prompt-2"}, []string{"answer-2"}, []string{"prompt-1", "prompt-2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &room{fold: newFold(), owner: true}
			for n := 1; n <= 3; n++ {
				r.fold.add(&Entry{N: r.fold.n + 1, Kind: KindPrompt, Data: mustJSON(Prompt{UUID: fmt.Sprint("prompt-", n), Message: message("user", fmt.Sprint("prompt-", n))})})
			}
			frames := map[string]bool{}
			for _, uuid := range c.frames {
				e := Entry{N: r.fold.n + 1, Kind: KindFrame, Record: uuid, Data: message("assistant", uuid)}
				switch uuid[:6] {
				case "prompt":
					e.Data = message("user", uuid)
				case "result":
					e.Record, e.Data = "", json.RawMessage(resultOf(int(uuid[7]-'0')))
				}
				frames[e.shows()] = true
				r.fold.add(&e)
			}
			x := &tx{r: r}
			x.appendFrames(missingFrames(records[:c.records], "", frames))
			var got []string
			for _, e := range x.entries {
				got = append(got, e.shows())
			}
			if !slices.Equal(got, c.want) || !slices.Equal(r.fold.running, c.running) || r.fold.midTurn != (len(c.running) > 0) {
				t.Errorf("recovered %v, running %v, in a turn: %v", got, r.fold.running, r.fold.midTurn)
			}
		})
	}
}
