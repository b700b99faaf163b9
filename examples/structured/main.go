// Structured makes an agent answer with a Go value. The schema comes from the type;
// an answer that does not fit is returned to the model until it does.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/parley-go/parley"
)

type bug struct {
	File     string `json:"file"`
	Line     int    `json:"line"`
	Severity string `json:"severity" jsonschema:"low, medium or high"`
	Why      string `json:"why" jsonschema:"one sentence"`
}

func main() {
	bugs, res, err := parley.RunAs[[]bug](context.Background(), "What is wrong with greet.py?", &parley.Options{
		AllowedTools: []string{"Read"},
		MaxTurns:     10,
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, b := range bugs {
		fmt.Printf("%s:%d: %s (%s)\n", b.File, b.Line, b.Why, b.Severity)
	}
	fmt.Printf("%d turns\n", res.NumTurns)
}
