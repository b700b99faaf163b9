package read

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/parley-go/parley/engine/internal/picture"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/files"
	"github.com/parley-go/parley/wire"
)

// Limits of notebooks.
const (
	maxNotebook     = 16 << 20
	maxNotebookText = 1 << 20 // bytes of everything shown
	maxCellOutput   = 10_000  // characters of a cell's output
)

// NotebookFile is a notebook, as a structured result.
type NotebookFile struct {
	FilePath string `json:"filePath"`
	Cells    []Cell `json:"cells"`
}

// A Cell is a cell of a notebook.
type Cell struct {
	CellType       string       `json:"cellType"`
	Source         string       `json:"source"`
	CellID         string       `json:"cell_id"`
	Language       string       `json:"language,omitempty"` // of a code cell
	ExecutionCount *int         `json:"execution_count,omitempty"`
	Outputs        []CellOutput `json:"outputs,omitempty"`
}

// A CellOutput is an output of a cell.
type CellOutput struct {
	OutputType string     `json:"output_type"`
	Text       string     `json:"text,omitempty"`
	Image      *CellImage `json:"image,omitempty"`
}

// A CellImage is a picture in the output of a cell.
type CellImage struct {
	ImageData string `json:"image_data"` // base64
	MediaType string `json:"media_type"`
}

// lines is text that notebooks store as a string or as a list of lines.
type lines string

func (l *lines) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*l = lines(one)
		return nil
	}
	var many []string
	if err := json.Unmarshal(data, &many); err != nil {
		return err
	}
	*l = lines(strings.Join(many, ""))
	return nil
}

type notebook struct {
	Cells []struct {
		ID             string `json:"id"`
		CellType       string `json:"cell_type"`
		Source         lines  `json:"source"`
		ExecutionCount *int   `json:"execution_count"`
		Outputs        []struct {
			OutputType string `json:"output_type"`
			Text       lines  `json:"text"`
			Ename      string `json:"ename"`
			Evalue     string `json:"evalue"`
			Traceback  []string
			Data       map[string]json.RawMessage `json:"data"`
		} `json:"outputs"`
	} `json:"cells"`
	Metadata struct {
		LanguageInfo struct {
			Name string `json:"name"`
		} `json:"language_info"`
	} `json:"metadata"`
}

// readNotebook reads the cells of a notebook.
func readNotebook(place *files.Place) (*tool.Result, error) {
	data, info, err := place.ReadAll(maxNotebook)
	if err != nil {
		return nil, err
	}
	var nb notebook
	if err := json.Unmarshal([]byte(strings.TrimPrefix(string(data), "\ufeff")), &nb); err != nil {
		return nil, fmt.Errorf("%s is not a notebook: %w. Look at it with a command, such as cat", place.Path, err)
	}
	place.Remember(info, data)
	language := nb.Metadata.LanguageInfo.Name
	if language == "" {
		language = "python"
	}
	out := &NotebookFile{FilePath: place.Given, Cells: []Cell{}}
	blocks := []wire.Block{}
	var text strings.Builder
	shown := 0
	flush := func() {
		if shown += text.Len(); text.Len() > 0 {
			blocks = append(blocks, &wire.TextBlock{Text: text.String()})
			text.Reset()
		}
	}
	for i, c := range nb.Cells {
		cell := Cell{CellType: c.CellType, Source: string(c.Source), CellID: c.ID, ExecutionCount: c.ExecutionCount}
		if cell.CellID == "" {
			cell.CellID = fmt.Sprintf("cell-%d", i)
		}
		kind := ""
		if c.CellType == "code" {
			cell.Language = language
			if language != "python" {
				kind = "<language>" + language + "</language>"
			}
		} else {
			kind = "<cell_type>" + c.CellType + "</cell_type>"
		}
		if text.Len() > 0 {
			text.WriteByte('\n')
		}
		fmt.Fprintf(&text, "<cell id=%q>%s%s</cell id=%q>", cell.CellID, kind, cell.Source, cell.CellID)
		for _, o := range c.Outputs {
			output := CellOutput{OutputType: o.OutputType, Text: string(o.Text)}
			if o.OutputType == "error" {
				output.Text = o.Ename + ": " + o.Evalue + "\n" + strings.Join(o.Traceback, "\n")
			}
			var plain lines
			if raw, ok := o.Data["text/plain"]; ok && json.Unmarshal(raw, &plain) == nil {
				output.Text += string(plain)
			}
			for _, media := range []string{"image/png", "image/jpeg"} {
				var encoded lines
				if raw, ok := o.Data[media]; ok && json.Unmarshal(raw, &encoded) == nil {
					output.Image = &CellImage{ImageData: strings.Join(strings.Fields(string(encoded)), ""), MediaType: media}
					break
				}
			}
			if len(output.Text) > maxCellOutput {
				output.Text = strings.ToValidUTF8(output.Text[:maxCellOutput], "") + fmt.Sprintf("\n… (cut; the output has %s. See all of it with a command, such as: jq '.cells[%d].outputs')", files.Size(int64(len(output.Text))), i)
			}
			if output.Text != "" {
				text.WriteString("\n\n" + output.Text)
			}
			if output.Image != nil {
				raw, err := base64.StdEncoding.DecodeString(output.Image.ImageData)
				if err != nil {
					raw = nil
				}
				if p, err := picture.Fit(raw); err == nil {
					flush()
					blocks = append(blocks, &wire.ImageBlock{Source: wire.Base64(p.Type, p.Data)})
				}
			}
			cell.Outputs = append(cell.Outputs, output)
		}
		out.Cells = append(out.Cells, cell)
	}
	flush()
	if shown > maxNotebookText {
		return nil, tool.Misuse("%s has %d cells with %s of text, too much to be read at once. Look at some with a command, such as: jq '.cells[0:20]'", place.Path, len(nb.Cells), files.Size(int64(shown)))
	}
	if len(blocks) == 0 {
		blocks = append(blocks, &wire.TextBlock{Text: "(The notebook has no cells.)"})
	}
	return &tool.Result{Content: wire.Blocks(blocks...), Structured: &Output{Type: "notebook", File: out}}, nil
}
