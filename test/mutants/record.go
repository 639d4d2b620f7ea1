package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"sync"
)

// fate is the result of the tests with a mutant.
type fate int

const (
	invalid fate = iota // it does not compile
	died
	survived
)

// fateNames are the words of the record, by fate.
var fateNames = [...]string{invalid: "invalid", died: "killed", survived: "survived"}

// record keeps the fates of the mutants that were tried, one a line in a file, so that an interrupted
// run goes on where it stopped. It is safe for concurrent use.
type record struct {
	file *os.File // nil if the fates end with the process

	mu    sync.Mutex
	fates map[string]fate
}

// openRecord reads the record at path, which it creates if there is none. If path is empty, the record
// is not kept.
func openRecord(path string) (*record, error) {
	r := &record{fates: map[string]fate{}}
	if path == "" {
		return r, nil
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	r.file = file
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
	r.mu.Lock()
	defer r.mu.Unlock()
	f, ok = r.fates[m.key()]
	return f, ok
}

// add keeps the fate of a mutant, unless it is known.
func (r *record) add(m mutant, f fate) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.fates[m.key()]; known {
		return nil
	}
	r.fates[m.key()] = f
	if r.file == nil {
		return nil
	}
	_, err := fmt.Fprintf(r.file, "%s\t%s\n", fateNames[f], m.key())
	return err
}

// key identifies the mutant among those of all packages.
func (m mutant) key() string { return fmt.Sprintf("%s (change %d of the file)", m, m.number) }
