package parleytest

import "fmt"

// A Refusal is a request that the API would not take.
type Refusal struct {
	Rule    string
	Status  int
	Type    string
	Message string
}

func (r *Refusal) Error() string {
	return fmt.Sprintf("%d %s: %s (rule %s)", r.Status, r.Type, r.Message, r.Rule)
}

func refuse(r *Request, http bool) *Refusal { return nil }
