package engine

// hidden reports whether a hook suppresses the output of a block.
func (b *block) hidden() bool {
	return b.shown != nil && *b.shown == "" || b.shown == nil && b.kind == "text" && b.text.Len() == 0
}

// shownText returns the last text of the answer, as it was emitted.
func (a *answer) shownText() string {
	last := ""
	for _, b := range a.blocks {
		if b.kind != "text" || !b.done {
			continue
		}
		if last = b.text.String(); b.shown != nil {
			last = *b.shown
		}
	}
	return last
}
