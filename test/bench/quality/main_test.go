package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheFiguresAreTheSameEveryTime(t *testing.T) {
	var first, second strings.Builder
	folder := t.TempDir()
	for _, out := range []*strings.Builder{&first, &second} {
		if err := run(out, folder, true); err != nil {
			t.Fatal(err)
		}
	}
	if first.String() != second.String() {
		t.Errorf("first\n%s\nthen\n%s", &first, &second)
	}
	plots, err := filepath.Glob(filepath.Join(folder, "*.svg"))
	if err != nil || len(plots) != 2 {
		t.Fatalf("plots %v, %v", plots, err)
	}
	for _, file := range plots {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for decoder := xml.NewDecoder(strings.NewReader(string(text))); ; {
			if _, err := decoder.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
		}
	}
}

func TestNobodyBeatsTheOptimum(t *testing.T) {
	for _, s := range placers() {
		for seed := range uint64(10) {
			w := smallCase(seed)
			p, placed := s.new(w.fleet), 0
			for _, r := range w.requests {
				if p.place(r) >= 0 {
					placed++
				}
			}
			if best := optimum(w); placed > best {
				t.Errorf("%s places %d of case %d; the optimum is %d", s.name, placed, seed, best)
			}
		}
	}
}
