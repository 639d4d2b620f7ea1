package osbclient

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// A Sluice has a market beside the OSB API, which says how many orders of a plan fit now. It accepts the platform's
// credentials for a token.

const (
	marketRoot = "market/v1"
	// maxMarketPage is the longest page of a market in bytes, plansInPage the number of plans that are asked for, and
	// maxMarketPages the number of pages that are read.
	maxMarketPage, plansInPage, maxMarketPages = 8 << 20, 500, 20
	// tokenLives is how long a token is used at most, and tokenSpare how long before its end another one is got.
	tokenLives, tokenSpare = time.Hour, time.Minute
	// maxToken is the longest token, in bytes.
	maxToken = 8 << 10
	// maxListed is the number of regions, or proven facts, of a plan that are kept.
	maxListed = 32
)

// marketToken is a token for the market, until it ends.
type marketToken struct {
	mu    sync.Mutex
	token string
	until time.Time
}

// MarketPlans reads what the market says of plans, by their ids. Plans that it does not list are absent. The error is an
// *Error; a broker without a market answers 404.
func (c *Client) MarketPlans(ctx context.Context, ids map[string]bool) (map[string]*v1alpha1.MarketPlan, error) {
	plans, err := c.marketPlans(ctx, ids)
	if refused := (*Error)(nil); errors.As(err, &refused) && refused.Status == http.StatusUnauthorized {
		c.market.forget() // it may have ended with its key, or with what it was issued for
		plans, err = c.marketPlans(ctx, ids)
	}
	return plans, err
}

func (c *Client) marketPlans(ctx context.Context, ids map[string]bool) (map[string]*v1alpha1.MarketPlan, error) {
	token, err := c.tokenForMarket(ctx)
	if err != nil {
		return nil, err
	}
	found, after := map[string]*v1alpha1.MarketPlan{}, ""
	for range maxMarketPages {
		query := url.Values{"limit": {strconv.Itoa(plansInPage)}}
		if after != "" {
			query.Set("continue", after)
		}
		r := request{what: "read the market", method: http.MethodGet, root: marketRoot, path: []string{"plans"}, query: query, bearer: token, limit: maxMarketPage}
		got, err := c.send(ctx, r, http.StatusOK)
		if err != nil {
			return nil, err
		}
		page := marketPage{}
		if len(got.body) > maxMarketPage {
			err = fmt.Errorf("longer than %d bytes", maxMarketPage)
		} else {
			err = got.decode(&page)
		}
		if err != nil {
			return nil, &Error{Request: r.what, Status: got.status, Malformed: true, Err: err}
		}
		for i := range page.Plans {
			if p := &page.Plans[i]; ids[p.ID] {
				found[p.ID] = p.checked()
			}
		}
		if after = page.Continue; after == "" || len(found) == len(ids) {
			break
		}
	}
	return found, nil
}

// tokenForMarket returns a token, a new one if there is none that lasts.
func (c *Client) tokenForMarket(ctx context.Context) (string, error) {
	c.market.mu.Lock()
	defer c.market.mu.Unlock()
	if c.market.token != "" && time.Now().Before(c.market.until) {
		return c.market.token, nil
	}
	r := request{what: "get a token for the market", method: http.MethodPost, root: marketRoot, path: []string{"tokens"}}
	got, err := c.send(ctx, r, http.StatusCreated)
	if err != nil {
		return "", err
	}
	var issued struct {
		Token     string    `json:"token"`
		ExpiresAt time.Time `json:"expires_at"`
	}
	if err := got.read(r.what, &issued); err != nil {
		return "", err
	}
	if len(issued.Token) > maxToken || !bearerToken.MatchString(issued.Token) {
		return "", &Error{Request: r.what, Status: got.status, Malformed: true, Err: errors.New("want a token as RFC 6750 has it")}
	}
	c.market.token, c.market.until = issued.Token, time.Now().Add(min(time.Until(issued.ExpiresAt), tokenLives)-tokenSpare)
	return c.market.token, nil
}

// bearerToken matches tokens (RFC 6750, section 2.1).
var bearerToken = regexp.MustCompile(`^[A-Za-z0-9._~+/-]+=*$`)

func (t *marketToken) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.token = ""
}

// marketPage is a page of plans, as GET /market/v1/plans answers.
type marketPage struct {
	Plans    []marketRow `json:"plans"`
	Continue string      `json:"continue"`
}

type marketRow struct {
	ID    string `json:"id"`
	Price *struct {
		Amount   string `json:"amount"`
		Currency string `json:"currency"`
	} `json:"price"`
	Regions []string `json:"regions"`
	Proven  *struct {
		EveryCluster bool     `json:"every_cluster"`
		Countries    []string `json:"countries"`
		LabelLevels  []string `json:"label_levels"`
	} `json:"proven"`
	Availability struct {
		Known    bool   `json:"known"`
		Orders   int64  `json:"orders"`
		AtLeast  bool   `json:"at_least"`
		Clusters int64  `json:"clusters"`
		Reason   string `json:"reason"`
	} `json:"availability"`
}

// checked returns what can be believed of a row: numbers within bounds, and texts that can be shown.
func (r *marketRow) checked() *v1alpha1.MarketPlan {
	p := &v1alpha1.MarketPlan{Regions: shown(r.Regions), Price: r.price()}
	if a := &r.Availability; a.Known {
		orders := max(a.Orders, 0)
		p.Orders, p.AtLeast, p.Clusters = &orders, a.AtLeast, int32(min(max(a.Clusters, 0), math.MaxInt32)) // bounded
		if orders == 0 {
			p.Reason = v1alpha1.Cut(Printable(a.Reason), 500)
		}
	}
	if r.Proven != nil {
		if r.Proven.EveryCluster {
			p.Proven = append(p.Proven, "every cluster is admitted by its credentials")
		}
		p.Proven = append(p.Proven, shown(r.Proven.Countries)...)
		p.Proven = append(p.Proven, shown(r.Proven.LabelLevels)...)
		p.Proven = p.Proven[:min(len(p.Proven), maxListed)]
	}
	return p
}

// currency matches the codes of ISO 4217, and amount decimal numbers that a price may be.
var (
	currency = regexp.MustCompile(`^[A-Z]{3}$`)
	amount   = regexp.MustCompile(`^[0-9]{1,9}(\.[0-9]{1,9})?$`)
)

func (r *marketRow) price() *v1alpha1.Price {
	if r.Price == nil || !currency.MatchString(r.Price.Currency) || !amount.MatchString(r.Price.Amount) {
		return nil
	}
	perMonth, err := resource.ParseQuantity(r.Price.Amount)
	if err != nil {
		return nil
	}
	return &v1alpha1.Price{Currency: r.Price.Currency, PerMonth: &perMonth}
}

// shown returns texts that can be shown.
func shown(texts []string) (all []string) {
	const longest = 63 // of a label's value
	for _, text := range texts[:min(len(texts), maxListed)] {
		if text = Printable(text); text != "" && len(text) <= longest {
			all = append(all, text)
		}
	}
	return all
}
