// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	stdfont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The names of the charts, in report.keep.
const (
	packedChart   = "memory"
	failoverChart = "hand-over"
	fairnessChart = "fairness"
)

// chart shows the medians of figures, and their range.
type chart struct {
	name, title string
	axis        string
	format      string   // of a value
	logarithmic float64  // the least value of a logarithmic axis; 0: the axis is linear
	groups      []string // beginnings of the wanted groups; nil is all
	names       []string // of the wanted contestants, in order
}

var charts = []chart{
	{
		packedChart, "Memory of a cache", "MB", "%.0f", 0, []string{"heap after sync", "peak resident memory of the first sync"},
		[]string{packedName, clientGoName, runtimeName},
	},
	{failoverChart, "Until the next leader reconciles a new object", "seconds, logarithmic", "%.3g", 1e-3, nil, operators},
	{fairnessChart, "Other keys that are reconciled before a user's change", "keys, logarithmic", "%.0f", 1, nil, []string{"setpoint", runtimeName}},
}

// palette has the color of each contestant. They differ in brightness, too, and are from the
// palette of Okabe and Ito.
var palette = map[string]color.Color{
	"setpoint": color.RGBA{0x00, 0x72, 0xb2, 0xff}, packedName: color.RGBA{0x00, 0x72, 0xb2, 0xff},
	runtimeName: color.RGBA{0xe6, 0x9f, 0x00, 0xff}, clientGoName: color.RGBA{0x99, 0x99, 0x99, 0xff},
}

// write writes the JSON file and draws the charts. An empty name leaves either out.
func (r *report) write(file, dir string) error {
	if file != "" {
		if err := r.save(file); err != nil {
			return err
		}
	}
	if dir == "" {
		return nil
	}
	drawn := 0
	for _, c := range charts {
		figures := c.of(r.Figures)
		if len(figures) == 0 {
			continue
		}
		drawn++
		if err := c.draw(figures, filepath.Join(dir, "chart-"+c.name+".svg")); err != nil {
			return err
		}
	}
	if drawn == 0 {
		return errors.New("-charts: no part that ran has a chart; use -only packed, failover or fairness")
	}
	return nil
}

// of returns the figures of the chart, without its other groups and contestants.
func (c *chart) of(all []figure) (figures []figure) {
	for _, f := range all {
		wanted := func(prefix string) bool { return strings.HasPrefix(f.Group, prefix) }
		if f.Chart == c.name && slices.Contains(c.names, f.Name) && (c.groups == nil || slices.ContainsFunc(c.groups, wanted)) {
			figures = append(figures, f)
		}
	}
	groups := map[string]int{}
	for _, f := range figures {
		if _, ok := groups[f.Group]; !ok {
			groups[f.Group] = len(groups)
		}
	}
	slices.SortStableFunc(figures, func(a, b figure) int {
		return cmp.Or(groups[a.Group]-groups[b.Group], slices.Index(c.names, a.Name)-slices.Index(c.names, b.Name))
	})
	return figures
}

// draw writes the chart to a file. Each group is a heading and a row for each contestant.
func (c *chart) draw(figures []figure, file string) error {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	plotter.DefaultFont = plot.DefaultFont
	p := plot.New()
	p.Title.Text, p.X.Label.Text = c.title, c.axis
	p.Title.Padding, p.X.Padding = vg.Points(6), vg.Points(4)
	p.Y.Width, p.Y.Tick.Width, p.Y.Tick.Length = 0, 0, 0
	least, most := c.rangeOf(figures)
	p.X.Min, p.X.Max, p.X.Tick.Marker = 0, most*1.35, steps{}
	if c.logarithmic > 0 {
		p.X.Min, p.X.Max = math.Pow(10, math.Floor(math.Log10(least))), most*30
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, decades{}
	}
	grid := plotter.NewGrid()
	grid.Horizontal.Width = 0
	p.Add(grid)
	row, group, names := 0.0, "", plot.ConstantTicks{}
	for _, f := range figures {
		if f.Group != group {
			group = f.Group
			row--
			if err := c.label(p, p.X.Min, row, group, true); err != nil {
				return err
			}
			row--
		}
		names = append(names, plot.Tick{Value: row, Label: f.Name})
		if err := c.row(p, row, f); err != nil {
			return err
		}
		row--
	}
	p.Y.Tick.Marker = names
	p.Y.Min, p.Y.Max = row, 0
	return save(p, vg.Points(500), vg.Points(75-17*row), file)
}

// save writes a plot with a margin. The plate is white, for pages with a dark background, too.
func save(p *plot.Plot, width, height vg.Length, file string) error {
	svg := vgsvg.New(width, height)
	plate := draw.New(svg)
	plate.SetColor(color.White)
	plate.Fill(plate.Path())
	p.Draw(draw.Crop(plate, vg.Points(12), vg.Points(-12), vg.Points(10), vg.Points(-10)))
	var text bytes.Buffer
	if _, err := svg.WriteTo(&text); err != nil {
		return err
	}
	// The library names one font, which most readers do not have.
	families := bytes.ReplaceAll(text.Bytes(), []byte("font-family:Liberation Sans"), []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif"))
	return os.WriteFile(file, families, 0o644)
}

// row draws the median as a bar, or as a dot on a logarithmic axis, and the range as a line.
func (c *chart) row(p *plot.Plot, y float64, f figure) error {
	m, least, most := median(f.Values), slices.Min(f.Values), slices.Max(f.Values)
	hue := palette[f.Name]
	between, err := plotter.NewLine(plotter.XYs{{X: c.at(least), Y: y}, {X: c.at(most), Y: y}})
	if err != nil {
		return err
	}
	between.Width = vg.Points(1)
	if c.logarithmic > 0 {
		between.Width, between.Color = vg.Points(3), hue
		dot, err := plotter.NewScatter(plotter.XYs{{X: c.at(m), Y: y}})
		if err != nil {
			return err
		}
		dot.Shape, dot.Radius, dot.Color = draw.CircleGlyph{}, vg.Points(5), hue
		p.Add(between, dot)
	} else {
		bar, err := plotter.NewPolygon(plotter.XYs{{X: 0, Y: y - 0.35}, {X: m, Y: y - 0.35}, {X: m, Y: y + 0.35}, {X: 0, Y: y + 0.35}})
		if err != nil {
			return err
		}
		bar.Color, bar.Width = hue, 0
		p.Add(bar, between)
	}
	text := fmt.Sprintf(c.format, m)
	if from, to := fmt.Sprintf(c.format, least), fmt.Sprintf(c.format, most); from != to {
		text += " (" + from + " to " + to + ")"
	}
	return c.label(p, c.at(most), y, text, false)
}

// at keeps values within a logarithmic axis, which has no zero.
func (c *chart) at(v float64) float64 { return max(v, c.logarithmic) }

func (c *chart) label(p *plot.Plot, x, y float64, text string, strong bool) error {
	labels, err := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{{X: x, Y: y}}, Labels: []string{text}})
	if err != nil {
		return err
	}
	labels.TextStyle[0].YAlign = draw.YCenter
	if !strong {
		labels.Offset = vg.Point{X: vg.Points(8), Y: vg.Points(1.5)}
	} else {
		labels.TextStyle[0].Font.Weight = stdfont.WeightBold
	}
	p.Add(labels)
	return nil
}

// rangeOf returns the least value that the axis shows, and the greatest.
func (c *chart) rangeOf(figures []figure) (least, most float64) {
	least = math.Inf(1)
	for _, f := range figures {
		least, most = min(least, c.at(slices.Min(f.Values))), max(most, slices.Max(f.Values))
	}
	return least, most
}

// decades marks the powers of ten.
type decades struct{}

func (decades) Ticks(least, most float64) (ticks []plot.Tick) {
	for v := least; v <= most*1.0001; v *= 10 {
		ticks = append(ticks, plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'f', -1, 64)})
	}
	return ticks
}

// steps marks up to ten multiples of 1, 2 or 5 times a power of ten.
type steps struct{}

func (steps) Ticks(_, most float64) (ticks []plot.Tick) {
	step := math.Pow(10, math.Floor(math.Log10(most/2)))
	for _, more := range []float64{2, 2.5, 2} {
		if most/step > 10 {
			step *= more
		}
	}
	for v := 0.0; v <= most; v += step {
		ticks = append(ticks, plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'f', -1, 64)})
	}
	return ticks
}
