package page

// Routes returns the patterns of all routes.
func (p *Page) Routes() []string { return p.routes }

// Advised returns the command that a text of ours offers for copying.
func Advised(text string) string { return advice(text).Command }
