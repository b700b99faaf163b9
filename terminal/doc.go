// Package terminal is the screen of the parley command: people type prompts, watch an agent
// work, and answer its questions.
//
// Finished text is printed once into the normal screen and never changed again, so that
// scrollback, selection and search remain those of the terminal. Only the last few lines,
// the live region, are redrawn: the text that is being written, running tools, the input
// and a status line. A redraw is one write, and happens only if something changed.
//
// The package uses no library such as Bubble Tea. It would use only the keys and the raw mode of such a
// library, which take 360 lines here. The printer, which keeps the promise above, has 220 lines.
//
// With [Config.Plain] there is no live region: the screen only prints lines.
//
// The screen is a viewer of a hub session: see [Session]. It is independent of models,
// tools and the network. Text from models, tools and files never reaches the terminal as it
// is: control characters and characters that reorder text are made visible.
package terminal
