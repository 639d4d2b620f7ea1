package main

import (
	"fmt"
	"math"
	"strings"
)

type point struct{ x, y float64 }

type line struct {
	name   string
	points []point
}

// plot is a chart of lines.
type plot struct {
	title, x, y string
	lines       []line
}

// colours that are told apart in light and in dark, and by most who see few colours
// (Okabe and Ito).
var colours = []string{"#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#999999"}

// svg draws the plot, 800 by 460.
func (p plot) svg() string {
	const left, top, width, height = 70.0, 50.0, 500.0, 340.0
	lowX, highX, lowY, highY := p.bounds()
	at := func(q point) (x, y float64) {
		return left + width*(q.x-lowX)/(highX-lowX), top + height*(1-(q.y-lowY)/(highY-lowY))
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 460" font-family="sans-serif" font-size="13">
<style>text{fill:#222}.axis{stroke:#888;fill:none}.grid{stroke:#8883}@media(prefers-color-scheme:dark){text{fill:#ddd}}</style>
<title>%s</title>
<text x="%.0f" y="28" font-size="17">%s</text>
`, p.title, left, p.title)
	for i := range 6 {
		share := float64(i) / 5
		x, y := left+width*share, top+height*(1-share)
		fmt.Fprintf(&b, `<path class="grid" d="M%.1f %.1fh%.0f"/><text x="%.1f" y="%.1f" text-anchor="end">%s</text>`+"\n",
			left, y, width, left-8, y+4, tick(lowY+share*(highY-lowY)))
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`+"\n", x, top+height+20, tick(lowX+share*(highX-lowX)))
	}
	fmt.Fprintf(&b, `<path class="axis" d="M%.0f %.0fv%.0fh%.0f"/>`+"\n", left, top, height, width)
	fmt.Fprintf(&b, `<text x="%.0f" y="%.0f" text-anchor="middle">%s</text>`+"\n", left+width/2, top+height+44, p.x)
	fmt.Fprintf(&b, `<text transform="translate(18 %.0f) rotate(-90)" text-anchor="middle">%s</text>`+"\n", top+height/2, p.y)
	for i, l := range p.lines {
		colour := colours[i%len(colours)]
		var path strings.Builder
		for j, q := range l.points {
			x, y := at(q)
			command := "L"
			if j == 0 {
				command = "M"
			}
			fmt.Fprintf(&path, "%s%.1f %.1f", command, x, y)
		}
		fmt.Fprintf(&b, `<path d="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", path.String(), colour)
		y := top + 14 + 22*float64(i)
		fmt.Fprintf(&b, `<path d="M590 %.0fh22" stroke="%s" stroke-width="3"/><text x="618" y="%.0f">%s</text>`+"\n", y-4, colour, y, l.name)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func (p plot) bounds() (lowX, highX, lowY, highY float64) {
	lowX, highX, lowY, highY = math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
	for _, l := range p.lines {
		for _, q := range l.points {
			lowX, highX = min(lowX, q.x), max(highX, q.x)
			lowY, highY = min(lowY, q.y), max(highY, q.y)
		}
	}
	margin := (highY - lowY) / 20
	return lowX, highX, lowY - margin, highY + margin
}

func tick(v float64) string {
	if math.Abs(v) < 1 {
		return fmt.Sprintf("%.3f", v)
	}
	return fmt.Sprintf("%.0f", v)
}
