package parleytest

import (
	"bytes"
	"encoding/json"
	"slices"
	"sync"
)

// A toolList is the value of the member tools. The requests of a conversation repeat it, and
// it is most of their bytes, so it is parsed once.
type toolList struct {
	raw     []byte
	checked []checkedTool
	body    []bodyTool
}

// aside stands for a list of tools that was set aside, and asideTool for the only tool in it.
const (
	asideTool = `{"name":"set aside"}`
	aside     = "[" + asideTool + "]"
)

var toolLists struct {
	sync.Mutex
	all []*toolList
}

// setAside returns the list that follows the first name tools in a body, and the body with
// aside in its place. It returns nil if there is no list, or none that can be set aside. The
// body is like the original one only if aside is its own member tools, which the caller
// checks.
func setAside(body []byte) ([]byte, *toolList) {
	head, tail, _ := bytes.Cut(body, []byte(`"tools":`))
	if !bytes.HasPrefix(tail, []byte("[")) {
		return nil, nil
	}
	toolLists.Lock()
	defer toolLists.Unlock()
	known := slices.IndexFunc(toolLists.all, func(l *toolList) bool { return bytes.HasPrefix(tail, l.raw) })
	if known < 0 {
		var raw json.RawMessage
		if json.NewDecoder(bytes.NewReader(tail)).Decode(&raw) != nil || loneSurrogate(raw) >= 0 {
			return nil, nil
		}
		l := &toolList{raw: raw, checked: checkedTools(raw)}
		if json.Unmarshal(raw, &l.body) != nil {
			return nil, nil
		}
		if len(toolLists.all) == 30 {
			toolLists.all = toolLists.all[1:]
		}
		toolLists.all = append(slices.Clip(toolLists.all), l)
		known = len(toolLists.all) - 1
	}
	l := toolLists.all[known]
	return slices.Concat(head, []byte(`"tools":`+aside), tail[len(l.raw):]), l
}
