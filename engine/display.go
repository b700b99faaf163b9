package engine

// hidden reports whether hooks want a block not to be told.
func (b *block) hidden() bool { return b.shown != nil && *b.shown == "" }

// shownText is the last text of the answer as it was told.
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
