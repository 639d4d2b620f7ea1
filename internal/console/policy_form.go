package console

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/access"
	"github.com/sluice-dev/sluice/internal/market"
	"github.com/sluice-dev/sluice/internal/strictjson"
)

// policyWords are the words of the pages on which a provider or a platform writes policies.
type policyWords struct {
	// Subject begins a sentence on what its policies are about.
	Subject string
	// Fields that they may have, and what Expressions read.
	Fields, Expressions string
	// Foreign means that other platforms order, so that a check supposes which one, and what the consumer has proven.
	Foreign bool
	// Example is the text with which the form of a new policy begins.
	Example string
	// Supposed begins the sentence on the question of a check, By comes before the consumer for whom it is asked, and
	// Besides after it. None says that there is no instance, Served that all plans are served as before.
	Supposed, By, Besides, None, Served string
}

var wordsOfPolicies = map[access.Role]*policyWords{
	access.Provider: {
		Subject: "Who may consume your clusters", Fields: "match, require and workloads", Expressions: "request, consumer, cluster and claims",
		Supposed: "If what is on your clusters were ordered now", By: ", by ", Besides: " Who has ordered it is not looked at.",
		None: "Nothing is on your clusters", Served: "Each of your clusters serves the plans that it serves now.",
		Foreign: true,
		Example: `# Whom it concerns: platforms, organizations, spaces, plans.
# What is left out is all of them.
match:
  plans: []
# Rules that must hold, each an expression (CEL) or a claim. A
# rule that does not hold refuses.
require:
- name: known-customers
  expression: consumer.organization in ["…"]
`},
	access.Platform: {
		Subject: "Which clusters take your orders", Fields: "match, require, prefer and workloads", Expressions: "request, consumer, claims, and the cluster but for its name and labels",
		Supposed: "If your instances were ordered again, each by those who have ordered it", By: ", and your plans by ",
		None: "You have no instances", Served: "Each of your plans is served where it is served now.",
		Example: `# Which orders: organizations, spaces, plans. What is left out
# is all of them.
match:
  plans: []
# Rules that a cluster must meet, each an expression (CEL) or a
# claim. Those of "prefer" have a weight, and refuse none.
require:
- name: in-the-eu
  expression: cluster.region.startsWith("eu-")
`},
}

// policyData is the data of the page on which a provider or a platform writes a policy.
type policyData struct {
	Words *policyWords
	// Prefix of the ids of the caller's policies, and Name after it.
	Prefix, Name string
	// ETag of what is changed; empty for a new policy.
	ETag string
	// Text is the spec, as YAML.
	Text string
	// Consumer for the check, by the names of the inputs, and the Claims that it has proven, one a line.
	Consumer []policyConsumer
	Claims   string
	// Refused says why nothing was done, and About which part of the form it is about: name, text, consumer or claims.
	Refused, About string
	// Check says whom it would refuse; nil if it was not asked.
	Check *market.PolicyCheck
	// Present and Would are how many instances are there, and would be refused.
	Present, Would int
}

// Assumed says what a check has asked.
func (d policyData) Assumed() string {
	var by []string
	for _, of := range d.Consumer {
		if of.Value != "" {
			by = append(by, "the "+of.Name+" "+of.Value)
		}
	}
	proven := strings.ReplaceAll(d.Claims, "\n", ", ")
	text := d.Words.Supposed
	if len(by) > 0 || proven != "" {
		text += d.Words.By + cmp.Or(strings.Join(by, " and "), "somebody")
	}
	if proven != "" {
		text += ", of whom " + proven + " is proven"
	}
	return text + "." + d.Words.Besides
}

// policyConsumer is an input for a part of the consumer.
type policyConsumer struct{ Name, Label, Value string }

// policyPage shows the form of a policy: a new one, or the one that the address names.
func (s *server) policyPage(c *call) (*page, error) {
	data := s.policyForm(c)
	if asked := c.URL.Query().Get("policy"); asked != "" {
		stored := struct {
			By   access.Role     `json:"by"`
			ETag string          `json:"etag"`
			Spec json.RawMessage `json:"spec"`
		}{}
		refused, err := s.market(c, http.MethodGet, policyPath(asked), nil, &stored)
		if err == nil && refused == "" && stored.By != c.caller.Role {
			refused = "The operator has written it, and changes it."
		}
		if err != nil || refused != "" {
			return nil, orRefused(err, "There is no such policy of yours", refused)
		}
		text, err := yaml.JSONToYAML(stored.Spec)
		if err != nil {
			return nil, err
		}
		data.Name, data.ETag, data.Text = strings.TrimPrefix(asked, data.Prefix), stored.ETag, string(text)
	}
	return policyPageOf(data), nil
}

func policyPath(name string) string { return "policies/" + url.PathEscape(name) }

func policyPageOf(data policyData) *page {
	shown := &page{Title: "Write a policy", template: "policy", Data: data}
	if data.ETag != "" {
		shown.Title = "Policy " + data.Prefix + data.Name
	}
	if data.Refused != "" {
		shown.status = http.StatusUnprocessableEntity
	}
	return shown
}

// policyForm returns the form as it was sent, or as it begins.
func (s *server) policyForm(c *call) policyData {
	given := func(name string) string { return strings.TrimSpace(c.PostForm.Get(name)) }
	words := wordsOfPolicies[c.caller.Role]
	data := policyData{Words: words, Prefix: market.PolicyID(c.caller, ""), Name: given("name"), ETag: given("etag"), Text: words.Example}
	if c.PostForm.Has("text") {
		data.Text = strings.ReplaceAll(c.PostForm.Get("text"), "\r\n", "\n")
	}
	for _, of := range []policyConsumer{{Name: "platform", Label: "Platform"}, {Name: "organization", Label: "Organization"}, {Name: "space", Label: "Space"}} {
		if of.Name == "platform" && !words.Foreign {
			continue // it is the caller
		}
		of.Value = given(of.Name)
		data.Consumer = append(data.Consumer, of)
	}
	data.Claims = strings.ReplaceAll(given("claims"), "\r\n", "\n")
	return data
}

// writePolicy checks or saves what was written.
func (s *server) writePolicy(c *call) (*page, error) {
	if c.ParseForm() != nil {
		return nil, errForm
	}
	data := s.policyForm(c)
	var spec v1alpha1.PlacementPolicySpec
	if err := strictjson.DecodeYAML([]byte(data.Text), &spec); err != nil {
		data.Refused, data.About = err.Error()+".", "text"
		return policyPageOf(data), nil
	}
	if data.Name == "" {
		data.Refused, data.About = "Name: choose one, of small letters, digits and hyphens.", "name"
		return policyPageOf(data), nil
	}
	path := policyPath(data.Prefix + data.Name)
	claims, err := market.ParseClaims(strings.Split(data.Claims, "\n"))
	if err != nil {
		data.Refused, data.About = "Proven: "+err.Error()+".", "claims"
		return policyPageOf(data), nil
	}
	switch c.PostForm.Get("do") {
	case "check":
		consumer := map[string]any{}
		for _, of := range data.Consumer {
			if of.Value != "" {
				consumer[of.Name] = of.Value
			}
		}
		if data.Words.Foreign {
			consumer["claims"] = claims
		}
		data.Check = &market.PolicyCheck{}
		data.Refused, err = s.market(c, http.MethodPost, path+"/check", map[string]any{"spec": &spec, "consumer": consumer}, data.Check)
	case "save":
		data.Refused, err = s.marketIf(c, data.ETag, http.MethodPut, path, &spec, nil)
	default:
		return nil, errForm
	}
	switch {
	case err != nil:
		return nil, err
	case data.Refused == "" && data.Check == nil:
		return c.seeOther(Root + "policies")
	case data.Refused != "":
		data.Check, data.About = nil, aboutOf(data.Refused)
	default:
		for _, one := range data.Check.Instances {
			data.Present, data.Would = data.Present+one.Present, data.Would+one.Refused
		}
	}
	return policyPageOf(data), nil
}

// aboutOf returns the part of the form that a refusal of the market is about, which begins with the field.
func aboutOf(refused string) string {
	switch field, _, _ := strings.Cut(refused, ":"); {
	case strings.HasPrefix(field, "consumer.claims"):
		return "claims"
	case strings.HasPrefix(field, "consumer."):
		return "consumer"
	case field == "id":
		return "name"
	}
	return "text"
}

// removePolicy removes a policy.
func (s *server) removePolicy(c *call) (*page, error) {
	return s.removeOwn(c, "policy", policyPath, "The policy was not removed", "policies")
}
