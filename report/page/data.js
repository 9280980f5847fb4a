// Data of the page: tables by column, as report/page_data.c writes them. Cells are the text of the CSV file.
"use strict";

const FORM = { // how a number is shown to people; files and downloads keep it whole
	count: v => Number.isInteger(v) ? v.toLocaleString("en-US").replace(/,/g, "\u2009") : short(v),
	real: v => short(v),
	share: v => (100 * v).toFixed(2) + " %",
	percent: v => (v > 0 ? "+" : "") + v.toFixed(2) + " %",
};

function short(v) {
	if (v === 0)
		return "0";
	if (Math.abs(v) >= 1e15 || Math.abs(v) < 1e-6)
		return v.toPrecision(4);
	const digits = Math.max(0, Math.min(8, 3 - Math.floor(Math.log10(Math.abs(v)))));
	const text = Number.isInteger(v) ? String(v) : v.toFixed(digits);
	const [whole, rest] = text.split(".");
	const grouped = whole.replace("-", "").length > 4 ? whole.replace(/\B(?=(\d{3})+$)/g, "\u2009") : whole;
	return rest === undefined ? grouped : grouped + "." + rest;
}

class Data {
	constructor(raw) {
		this.n = raw.n;
		this.columns = raw.columns;
		this.result = raw.result; // the row of the results behind each row, -1: none
		for (const column of this.columns) {
			const {all, names, at, values} = column;
			column.text = "all" in column ? () => all : names ? i => names[at[i]] : i => values[i];
		}
	}

	numbers(column) {
		if (!column.parsed) {
			column.parsed = new Float64Array(this.n);
			for (let i = 0; i < this.n; i++) {
				const text = column.text(i);
				column.parsed[i] = text === "" ? NaN : Number(text);
			}
		}
		return column.parsed;
	}

	shown(column, i) {
		const text = column.text(i);
		if (!column.number || text === "")
			return text;
		return FORM[column.form](Number(text));
	}

	// Rows in an order, as RFC 4180: what a download holds.
	csv(rows) {
		const quote = text => /[",\r\n]/.test(text) ? '"' + text.replace(/"/g, '""') + '"' : text;
		const lines = [this.columns.map(c => quote(c.name)).join(",")];
		for (const i of rows)
			lines.push(this.columns.map(c => quote(c.text(i))).join(","));
		return lines.join("\n") + "\n";
	}

	allRows() {
		return Array.from({length: this.n}, (_, i) => i);
	}
}

function download(name, type, text) {
	const link = document.createElement("a");
	link.href = URL.createObjectURL(new Blob([text], {type}));
	link.download = name;
	document.body.append(link);
	link.click();
	link.remove();
	setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function make(tag, attributes, ...children) {
	const element = document.createElement(tag);
	for (const [name, value] of Object.entries(attributes || {}))
		element.setAttribute(name, value);
	element.append(...children);
	return element;
}
