package main

import (
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/bargauge"
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// board is a dashboard.
type board struct {
	name, title, description string
	// choice of what the board shows; its queries have it as a matcher of the label.
	choice choice
	rows   []row
}

// choice is a variable with the values of a label of a metric; all of them at first.
type choice struct{ label, metric string }

// row of a board. The widths of its panels add up to multiples of 24.
type row struct {
	title  string
	panels []panel
}

// panel of a row.
type panel struct {
	title, description string
	width              uint32
	view               view
	unit               string
	// alarm, if it is not 0, is the value from which on a number is red.
	alarm   float64
	queries []query
}

// query is an expression of PromQL, and the legend of its series.
type query struct{ expr, legend string }

// view makes a panel of one of Grafana's kinds.
type view func(panel) cog.Builder[dashboard.Panel]

// source is the Prometheus that is chosen at the top of a board.
var source = common.DataSourceRef{Type: new("prometheus"), Uid: new("${datasource}")}

func (b board) build() (dashboard.Dashboard, error) {
	d := dashboard.NewDashboardBuilder(b.title).Uid("sluice-"+b.name).Description(b.description).Tags([]string{"sluice"}).
		Time("now-6h", "now").Refresh("1m").Timezone("browser").Tooltip(dashboard.DashboardCursorSyncCrosshair).
		WithVariable(dashboard.NewDatasourceVariableBuilder("datasource").Label("Prometheus").Type("prometheus")).
		WithVariable(dashboard.NewQueryVariableBuilder(b.choice.label).Datasource(source).
			Query(dashboard.StringOrMap{String: new(fmt.Sprintf("label_values(%s, %s)", b.choice.metric, b.choice.label))}).
			Refresh(dashboard.VariableRefreshOnTimeRangeChanged).Sort(dashboard.VariableSortAlphabeticalAsc).
			Multi(true).IncludeAll(true).AllValue(".*").Current(dashboard.VariableOption{
			Text: dashboard.StringOrArrayOfString{String: new("All")}, Value: dashboard.StringOrArrayOfString{String: new("$__all")},
		}))
	for _, r := range b.rows {
		d.WithRow(dashboard.NewRowBuilder(r.title))
		for _, p := range r.panels {
			d.WithPanel(p.view(p))
		}
	}
	return d.Build()
}

// builder has the methods that the builders of all kinds of panels share.
type builder[B any] interface {
	Title(string) B
	Description(string) B
	Datasource(common.DataSourceRef) B
	Span(uint32) B
	Height(uint32) B
	Unit(string) B
	NoValue(string) B
	WithTarget(cog.Builder[variants.Dataquery]) B
}

// fill gives a panel all that does not depend on its kind.
func fill[B builder[B]](b B, p panel, height uint32, dress func(*prometheus.DataqueryBuilder)) B {
	if p.description != "" {
		b.Description(p.description)
	}
	b.Title(p.title).Datasource(source).Span(p.width).Height(height).Unit(p.unit)
	for i, q := range p.queries {
		target := prometheus.NewDataqueryBuilder().Datasource(source).RefId(string(rune('A' + i))).Expr(q.expr).LegendFormat(q.legend)
		dress(target)
		b.WithTarget(target)
	}
	return b
}

// last is the reduction of a series to its present value.
var last = common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"})

func overTime(q *prometheus.DataqueryBuilder) { q.Range() }
func now(q *prometheus.DataqueryBuilder)      { q.Instant() }

// curves shows each series over time.
func curves(p panel) cog.Builder[dashboard.Panel] {
	return fill(timeseries.NewPanelBuilder(), p, 8, overTime).Min(0).
		Legend(common.NewVizLegendOptionsBuilder().DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom).ShowLegend(true)).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending))
}

// stacked shows series over time on top of each other.
func stacked(p panel) cog.Builder[dashboard.Panel] {
	return curves(p).(*timeseries.PanelBuilder).FillOpacity(30).
		Stacking(common.NewStackingConfigBuilder().Mode(common.StackingModeNormal))
}

// number shows the present value. Nothing to count is 0.
func number(p panel) cog.Builder[dashboard.Panel] {
	b := fill(stat.NewPanelBuilder(), p, 4, now).NoValue("0").ReduceOptions(last).GraphMode(common.BigValueGraphModeNone).Orientation(common.VizOrientationAuto)
	steps := []dashboard.Threshold{{Color: "green"}}
	if p.alarm != 0 {
		steps = append(steps, dashboard.Threshold{Value: &p.alarm, Color: "red"})
	}
	return b.Thresholds(dashboard.NewThresholdsConfigBuilder().Mode(dashboard.ThresholdsModeAbsolute).Steps(steps))
}

// bars shows the present value of each series.
func bars(p panel) cog.Builder[dashboard.Panel] {
	return fill(bargauge.NewPanelBuilder(), p, 8, now).Min(0).ReduceOptions(last).Orientation(common.VizOrientationHorizontal)
}

// list shows the labels of each series that there is now.
func list(p panel) cog.Builder[dashboard.Panel] {
	return fill(table.NewPanelBuilder(), p, 8, func(q *prometheus.DataqueryBuilder) { q.Instant().Format(prometheus.PromQueryFormatTable) }).
		NoValue("none").WithTransformation(dashboard.DataTransformerConfig{
		Id: "organize", Options: map[string]any{"excludeByName": map[string]bool{"Time": true, "Value": true}},
	})
}
