package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
)

// record keeps the fates of the mutants that were tried, one a line in a file, so that an
// interrupted run goes on where it stopped. A nil record keeps nothing.
type record struct {
	file  *os.File
	fates map[string]fate
}

// openRecord reads the record at path, which it creates if there is none.
func openRecord(path string) (*record, error) {
	if path == "" {
		return nil, nil
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	r := &record{file: file, fates: map[string]fate{}}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		word, key, _ := strings.Cut(lines.Text(), "\t")
		for f, name := range fateNames {
			if name == word {
				r.fates[key] = fate(f)
			}
		}
	}
	return r, lines.Err()
}

// of returns the fate of a mutant that was tried before. If its line has changed since, it is
// another mutant.
func (r *record) of(m mutant) (f fate, ok bool) {
	if r != nil {
		f, ok = r.fates[m.key()]
	}
	return f, ok
}

func (r *record) add(m mutant, f fate) error {
	if r == nil {
		return nil
	}
	_, err := fmt.Fprintf(r.file, "%s\t%s\n", fateNames[f], m.key())
	return err
}

// key identifies the mutant among those of all packages.
func (m mutant) key() string { return fmt.Sprintf("%s (change %d of the file)", m, m.number) }
