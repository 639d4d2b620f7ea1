package console

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// inviteData is the data of the page on which a provider invites a cluster.
type inviteData struct {
	// Given values of the form; empty at first.
	Given url.Values
	// Refused says why nothing was done.
	Refused string
	// Proven means that the operator requires proofs.
	Proven bool
	// Invited cluster, with Command for its owner; empty if there is none yet.
	Invited, Command string
	ExpiresAt        time.Time
}

// invitePage asks a provider which cluster it invites.
func (s *server) invitePage(c *call) (*page, error) {
	return s.inviting(c, inviteData{})
}

func (s *server) inviting(c *call, data inviteData) (*page, error) {
	p := &v1alpha1.Provider{}
	if err := s.get(c.Context(), c.caller.Name, p); err != nil {
		return nil, orNoSuch(err, "provider", c.caller.Name)
	}
	if p.Spec.Joins == nil {
		return nil, &Error{Status: http.StatusForbidden, Title: "You may add no clusters yourself",
			Description: "The operator of this broker adds them, or allows you to: sluice provider add " + p.Name + " --clusters NUMBER."}
	}
	data.Proven = p.Spec.Joins.Proven
	shown := &page{Title: "Add a cluster", template: "invite", Data: data}
	if data.Refused != "" {
		shown.status = http.StatusUnprocessableEntity
	}
	return shown, nil
}

// invite makes an invitation, and shows it once.
func (s *server) invite(c *call) (*page, error) {
	if c.ParseForm() != nil {
		return nil, errForm
	}
	given := func(name string) string { return strings.TrimSpace(c.PostForm.Get(name)) }
	asked := map[string]any{"cluster": given("cluster")}
	for _, name := range []string{"region", "tier", "offering"} {
		if value := given(name); value != "" {
			asked[name] = value
		}
	}
	perHour := map[string]string{}
	for _, name := range []string{"cpu", "memory"} {
		if value := given(name); value != "" {
			perHour[name] = value
		}
	}
	if len(perHour) > 0 {
		asked["prices"] = map[string]any{"currency": given("currency"), "perHour": perHour}
	}
	var made struct {
		Token     string    `json:"token"`
		ExpiresAt time.Time `json:"expires_at"`
	}
	refused, err := s.market(c, http.MethodPost, "invitations", asked, &made)
	if err != nil {
		return nil, err
	}
	data := inviteData{Given: c.PostForm, Refused: refused}
	if refused == "" {
		data.Invited, data.ExpiresAt = given("cluster"), made.ExpiresAt
		data.Command = fmt.Sprintf("sluice cluster join - --to %s --context CONTEXT <<'END'\n%s\nEND", s.base(c), made.Token)
	}
	return s.inviting(c, data)
}

// withdraw ends an invitation.
func (s *server) withdraw(c *call) (*page, error) {
	if c.ParseForm() != nil {
		return nil, errForm
	}
	refused, err := s.market(c, http.MethodDelete, "invitations/"+url.PathEscape(c.PostForm.Get("cluster")), nil, nil)
	if err != nil {
		return nil, err
	}
	if refused != "" {
		return nil, &Error{Status: http.StatusConflict, Title: "The invitation was not withdrawn", Description: refused}
	}
	return c.seeOther(Root + "supply")
}

// joinRow is a cluster that a provider adds, until something is sold on it.
type joinRow struct {
	Name string
	// Open is the end of an invitation that nobody has used; nil if the cluster has joined.
	Open  *time.Time
	Steps []joinStep
}

// joinStep is a step on the way of a cluster from its invitation to its first sale.
type joinStep struct {
	Word  string
	State string // good, busy, bad or off
	// Message of the step that is waited for.
	Message string
}

// joinSteps are the words of the steps, in their order.
var joinSteps = []string{"Invited", "Joined", "Ready", "Admitted", "Sold"}

// stepsTo returns the steps of which so many are done; the next one is waited for.
func stepsTo(done int, message string) (steps []joinStep) {
	for i, word := range joinSteps {
		step := joinStep{Word: word, State: "off"}
		switch {
		case i < done:
			step.State = "good"
		case i == done:
			step.State, step.Message = "busy", message
		}
		steps = append(steps, step)
	}
	return steps
}

// joining returns the clusters that a provider is adding: open invitations, and clusters on which nothing is sold yet.
func (s *server) joining(c *call, own []*clusterRow) (rows []joinRow, may bool, err error) {
	p := &v1alpha1.Provider{}
	if err := s.get(c.Context(), c.caller.Name, p); err != nil {
		return nil, false, orNoSuch(err, "provider", c.caller.Name)
	}
	for i := range p.Status.Invitations {
		if one := &p.Status.Invitations[i]; !one.Used && s.Clock.Now().Before(one.ExpiresAt.Time) {
			rows = append(rows, joinRow{Name: one.Cluster, Open: &one.ExpiresAt.Time, Steps: stepsTo(1, "its owner runs the command with the invitation")})
		}
	}
	for _, row := range own {
		m := &v1alpha1.MemberCluster{}
		if err := s.get(c.Context(), row.Name, m); err != nil || !m.Spec.Guarded || row.Instances > 0 {
			continue // it has left since, or is not new
		}
		rows = append(rows, joinRow{Name: row.Name, Steps: stepsOf(m)})
	}
	slices.SortFunc(rows, func(a, b joinRow) int { return strings.Compare(a.Name, b.Name) })
	return rows, p.Spec.Joins != nil, nil
}

// stepsOf returns how far a cluster is that has joined, and on which nothing is sold.
func stepsOf(m *v1alpha1.MemberCluster) []joinStep {
	for _, step := range []struct {
		done               int
		condition, unknown string
		due                bool
	}{
		{2, v1alpha1.ConditionReady, "the broker connects to it", true},
		{3, v1alpha1.ConditionAdmitted, "its credentials are verified", m.Spec.Trust != nil},
	} {
		found := meta.FindStatusCondition(m.Status.Conditions, step.condition)
		switch {
		case !step.due || found != nil && found.Status == metav1.ConditionTrue:
		case found == nil:
			return stepsTo(step.done, step.unknown)
		default:
			return stepsTo(step.done, found.Message)
		}
	}
	return stepsTo(4, "nobody has bought anything there yet")
}
