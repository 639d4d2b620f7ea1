package console

import (
	"io"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/net/html"
)

// answer of the console.
type answer struct {
	*http.Response
	body string
}

// isLive reports whether the page loads itself again.
func (a answer) isLive() bool {
	return strings.Contains(a.body, "data-live") || strings.Contains(a.body, `http-equiv="refresh"`)
}

// send sends a request as a browser on the console's own pages does. form is posted; nil asks for the page.
func (c *consoleOf) send(browser *http.Client, path string, form url.Values) answer {
	c.Helper()
	method, body := http.MethodGet, io.Reader(nil)
	if form != nil {
		method, body = http.MethodPost, strings.NewReader(form.Encode())
	}
	r, err := http.NewRequestWithContext(c.Context(), method, c.server.URL+path, body)
	if err != nil {
		c.Fatal(err)
	}
	r.Header.Set("Accept", "text/html")
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	return c.do(browser, r)
}

// shows fails the test unless a page is answered with a status, and says everything that is wanted. It returns the page.
func (c *consoleOf) shows(browser *http.Client, path string, form url.Values, status int, want ...string) (page string) {
	c.Helper()
	got := c.send(browser, Root+path, form)
	text := words(got.body)
	if got.StatusCode != status {
		c.Errorf("%s is answered %d, want %d", path, got.StatusCode, status)
	}
	for _, part := range want {
		if !strings.Contains(text, part) {
			c.Errorf("%s has no %q in\n%s", path, part, text)
		}
	}
	return got.body
}

func (c *consoleOf) do(browser *http.Client, r *http.Request) answer {
	c.Helper()
	response, err := browser.Do(r)
	if err != nil {
		c.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		c.Fatal(err)
	}
	return answer{response, string(body)}
}

// nodes calls do with every element of a page.
func nodes(page string, do func(*html.Node)) error {
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		return err
	}
	for n := range root.Descendants() {
		if n.Type == html.ElementNode {
			do(n)
		}
	}
	return nil
}

// attributeOf returns an attribute of an element; "" if it has none.
func attributeOf(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// words returns the text of a page, with single blanks.
func words(page string) string {
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	for n := range root.Descendants() {
		if n.Type == html.TextNode {
			b.WriteString(n.Data + " ")
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}
