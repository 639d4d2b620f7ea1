package console

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/journal"
)

// journalWithin is how far back the page of the journal looks, and mostEntries how many events it has at most, the
// latest ones.
const (
	journalWithin = 7 * 24 * time.Hour
	mostEntries   = 5000
)

// entry is an event in the journal.
type entry struct {
	journal.Entry
	Kind, By, Took, Service, Plan string
	// Link of the instance; it may be gone.
	Link string
}

// journalData is the data of the page of the journal.
type journalData struct {
	Filter  filter
	Types   []string
	Days    int
	Entries []entry
	Pages   pager
}

func (s *server) journalPage(c *call) (*page, error) {
	all, err := s.journal.get(c.Context(), s.Clock, s.readJournal)
	if err != nil {
		return nil, err
	}
	by := filterOf(c, "type", "text")
	found := slices.DeleteFunc(slices.Clone(all), func(e entry) bool {
		return !by.is("type", string(e.Type)) || !by.has(e.InstanceID, e.Name, e.Platform, e.BindingID, e.Message, e.By, strings.Join(e.Clusters, " "), e.Service+"/"+e.Plan)
	})
	data := journalData{Filter: by, Days: int(journalWithin / (24 * time.Hour))}
	types := map[string]bool{}
	for _, e := range all {
		if t := string(e.Type); !types[t] {
			types[t], data.Types = true, append(data.Types, t)
		}
	}
	slices.Sort(data.Types)
	data.Entries, data.Pages = paged(c, found)
	return &page{Title: "Journal", template: "journal", Data: data}, nil
}

// readJournal reads the latest events, the latest first, also those of what is gone.
func (s *server) readJournal(ctx context.Context) ([]entry, error) {
	since := s.Clock.Now().Add(-journalWithin)
	read, err := journal.Read(ctx, s.Live, s.Namespace, func(e journal.Entry) bool { return e.At.After(since) })
	if err != nil {
		return nil, err
	}
	read = read[max(0, len(read)-mostEntries):]
	entries := make([]entry, 0, len(read))
	for _, e := range slices.Backward(read) {
		row := newEventRow(e.Event)
		one := entry{Entry: e, Kind: row.Kind, By: row.By, Took: row.Took}
		if e.PlanID != "" {
			one.Service, one.Plan = s.names(e.ServiceID, e.PlanID)
		}
		switch e.Kind {
		case v1alpha1.KindServiceInstance:
			one.Link = Root + "instances/" + e.Name
		case v1alpha1.KindMemberCluster:
			one.Link = Root + "clusters/" + e.Name
		}
		entries = append(entries, one)
	}
	return entries, nil
}
