// Command dashboards writes the Grafana dashboards of the Helm chart, one file for each board of boards, into a folder.
// The tables of their panels are in the other files of this package.
//
//	cd tools && go run ./dashboards ../charts/sluice/dashboards
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// boards are all dashboards.
var boards = []board{marketplace, clusters, links}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "dashboards: want the folder to write to")
		os.Exit(2)
	}
	for _, b := range boards {
		if err := write(b, filepath.Join(os.Args[1], b.name+".json")); err != nil {
			fmt.Fprintf(os.Stderr, "dashboards: %s: %v\n", b.name, err)
			os.Exit(1)
		}
	}
}

func write(b board, file string) error {
	built, err := b.build()
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(built, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}
