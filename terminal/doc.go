// Package terminal is the screen of the parley command: people type prompts, watch an agent
// work, and answer its questions.
//
// Finished text is printed once into the normal screen and never changed again, so that
// scrollback, selection and search remain those of the terminal. Only the last few lines,
// the live region, are redrawn: the text that is being written, running tools, the input
// and a status line. A redraw is one write, and happens only if something changed.
//
// The package uses no library such as Bubble Tea: it would need only the decoding of keys and the raw
// mode, which take 360 lines here.
//
// With [Config.Plain] there is no live region: the screen only prints lines.
//
// The screen is a viewer of a hub session: see [Session]. It is independent of models,
// tools and the network. Text from models, tools and files never reaches the terminal as it
// is: control characters and characters that reorder text are made visible.
package terminal
