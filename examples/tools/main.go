// Tools gives an agent two tools that are Go functions. Their schemas come from
// the types of their inputs, and the model receives the text of an error.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/parley-go/parley"
)

type place struct {
	City string `json:"city" jsonschema:"the name of a city"`
}

type forecast struct {
	Sky     string  `json:"sky"`
	Celsius float64 `json:"celsius"`
}

// weather is called by the agent, in this process.
func weather(ctx context.Context, in place) (forecast, error) {
	if in.City != "Oslo" {
		return forecast{}, fmt.Errorf("nothing is known about %s; try Oslo", in.City)
	}
	return forecast{Sky: "clear", Celsius: 4.5}, nil
}

// remember stores a note; any Go code can be a tool.
func remember(ctx context.Context, in struct {
	Note string `json:"note"`
}) (string, error) {
	fmt.Println("note:", in.Note)
	return "kept", nil
}

func main() {
	server := parley.ToolServer("town",
		parley.NewTool("weather", "Returns the weather in a city.", weather),
		parley.NewTool("remember", "Keeps a note for the user.", remember))
	res, err := parley.Run(context.Background(), "What should I wear in Oslo? Take a note of it.", &parley.Options{
		ToolServers:  map[string]*mcp.Server{"town": server},
		AllowedTools: []string{"mcp__town"}, // all tools of the server, without permission prompts
		Tools:        []string{},            // and no other tool
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.Result)
}
