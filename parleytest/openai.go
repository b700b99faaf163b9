package parleytest

// openaiFace is the chat completions API.
type openaiFace struct{ messagesFace }

func (x *exchange) openai() { x.fail(404, "not_found_error", "Not found") }
